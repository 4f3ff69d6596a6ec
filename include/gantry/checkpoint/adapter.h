// LoRA adapters in PEFT's format: a directory with adapter_config.json and adapter_model.safetensors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/adapter_config.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/core/config.h"

namespace gantry {

// Loads this rank's part of the directory's tensors into the trained tensors among `held`. `trained`: the result of
// models::trained_names for the full model. `coordinates`: this rank's, by axis. Throws InputError for an adapter of
// another base model: missing or unexpected tensors, or other shapes. `loaded` is called with the number of bytes of
// each tensor. `other_parts`: see ModelFamily; an adapter of them is an InputError.
void load_adapter(const std::string& directory, const std::vector<models::TensorName>& trained,
                  const std::vector<HeldTensor>& held, const Coordinates& coordinates,
                  const std::function<void(std::uint64_t)>& loaded = {},
                  const std::vector<std::string>& other_parts = {});

// True for a checkpoint of a LoRA run, which contains the adapters and not the base model.
bool holds_adapters(const std::string& folder);

// Exports the adapters of a checkpoint as a PEFT directory. Hashes are checked first. Throws CheckpointError.
void export_adapter(const std::string& folder, const std::string& directory, const ExportOptions& options = {});

// Writes a full model: the base with scale * B A added to the weights of adapted layers, in at least float32, and with
// the modules that were trained in full. `from`: a checkpoint of a LoRA run, or a PEFT directory. `base`: the directory
// of the base model; empty: the one that the run or the adapter names. Throws CheckpointError or InputError, and
// UsageError without a base, or if `directory` is one of these directories.
void merge_adapter(const std::string& from, const std::string& base, const std::string& directory,
                   const ExportOptions& options = {});

}  // namespace gantry
