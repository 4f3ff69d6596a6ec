// Adapters (LoRA) as PEFT stores them: a directory with adapter_config.json and adapter_model.safetensors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/adapter_config.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/core/config.h"

namespace gantry {

// Fills what is trained of the held tensors with this rank's part of the directory's. `trained`: the names of
// models::trained_names, of the whole model. `coordinates`: this rank's, by axis. InputError for an adapter of another
// base: tensors that are missing or unexpected, or of other shapes. `loaded` is called with the bytes that each took.
void load_adapter(const std::string& directory, const std::vector<models::TensorName>& trained,
                  const std::vector<HeldTensor>& held, const Coordinates& coordinates,
                  const std::function<void(std::uint64_t)>& loaded = {});

// True for a checkpoint of a run that trained adapters: it holds them, and not the base.
bool holds_adapters(const std::string& folder);

// The adapters of a checkpoint as a directory of PEFT's, hashes checked first. CheckpointError.
void export_adapter(const std::string& folder, const std::string& directory, const ExportOptions& options = {});

// A whole model: the base, with scale * B A added to the weights of adapted layers, in float32 or wider, and with the
// modules that were trained whole. `from`: such a checkpoint, or a directory of PEFT's. `base`: the directory of the
// base; empty: the one that the run or the adapter names. CheckpointError, InputError; UsageError without a base.
void merge_adapter(const std::string& from, const std::string& base, const std::string& directory,
                   const ExportOptions& options = {});

}  // namespace gantry
