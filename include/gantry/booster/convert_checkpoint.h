// Writing a checkpoint for another parallel layout, and a Hugging Face model as a checkpoint: `gantry checkpoint
// reshard` and `import`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/world.h"
#include "gantry/core/config.h"

namespace gantry {

struct Manifest;

// Both are called with the number of bytes that a rank has read or written since the last call. Ranks that are threads
// of one process call them at the same time. Empty functions are not called.
struct ConversionProgress {
  std::function<void(std::uint64_t bytes)> read, written;
};

// A checkpoint that is to be written for another layout.
struct Resharding {
  std::string checkpoint;                    // the step folder
  Config config;                             // configuration of the new checkpoint
  std::shared_ptr<const Manifest> manifest;  // manifest of the old checkpoint
  std::int64_t step = 0;
  std::uint64_t bytes = 0;  // size of all tensors
};

// Reads the manifest of a checkpoint (a step folder, or its parent for the newest one) and loads the libraries in its
// configuration. The new configuration is that of the checkpoint with `overrides` ("parallel.tensor=4"). Called before
// the ranks start. Throws UsageError if an override changes the model, CheckpointError, and ConfigError.
Resharding prepare_resharding(const std::string& checkpoint, const std::vector<std::string>& overrides);

// Writes the checkpoint with the layout of `resharding.config` into a new step folder of `directory`, and returns that
// folder. Throws ConfigError if the new checkpoint would lose tensors, or would store them with another type;
// CheckpointError if the old one is damaged; ResourceError if the new one cannot be written. Collective over the world.
std::string reshard_checkpoint(World& world, const Resharding& resharding, const std::string& directory,
                               const ConversionProgress& progress = {});

// Returns the resolved configuration for the model of a Hugging Face directory, with `overrides`, and loads its
// libraries. Called before the ranks start. Throws ConfigError or InputError.
Config import_config(const std::string& model, const std::vector<std::string>& overrides);

struct ImportedModel {
  std::string checkpoint;                   // the step folder that was written
  std::vector<std::string> new_parameters;  // parameters with initial weights, because the directory lacks them
};

// Writes the model of import_config() as a checkpoint of step 0 into `directory`. Throws InputError if the weights do
// not fit the model, and ResourceError if the checkpoint cannot be written. Collective over the world.
ImportedModel import_model(World& world, const Config& config, const std::string& directory,
                           const ConversionProgress& progress = {});

}  // namespace gantry
