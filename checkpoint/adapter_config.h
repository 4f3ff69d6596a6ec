// Writes adapter_config.json in PEFT's format.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/adapter_files.h"
#include "gantry/core/config.h"
#include "gantry/models/model_family.h"

namespace gantry {

// Properties of a model's adapters that are not in the configuration.
struct AdaptedModel {
  std::vector<std::string> layers;      // the paths of all adapted layers, for all-linear
  std::vector<std::string> parameters;  // which of target_modules are PEFT's target_parameters
  bool transposed = false;              // the layers' weights are stored [in, out]
  std::string task = {};                // PEFT's task_type; empty: none
};
nlohmann::json adapter_config_json(const LoraConfig& lora, const std::string& base, const AdaptedModel& model);

// Throws InputError unless the adapter's tensors are exactly the trained tensors of a model. `path`: the
// adapter's file.
void check_adapter_names(const std::vector<std::string>& stored, const std::vector<models::TensorName>& trained,
                         const std::string& path, const std::vector<std::string>& other_parts);

// Whether a tensor of an adapter file is the base table that PEFT stores with the adapter of an embedding.
bool is_base_table(const std::string& stored);

}  // namespace gantry
