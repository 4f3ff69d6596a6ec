// Models as Hugging Face stores them: config.json beside model.safetensors, whole or in shards with an index.
#pragma once

#include <nlohmann/json.hpp>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

// config.json. InputError if it is missing or no JSON object.
nlohmann::json read_model_config(const std::string& directory);

// Fills every held tensor with this rank's part of the file's tensor, turned and converted as needed. `keys`: the
// model's own config. `coordinates`: this rank's, by axis. InputError that lists missing and unexpected names, or names
// both shapes where they differ. Returns the names of a new head's tensors, which the file lacks: they keep their values.
std::vector<std::string> load_hugging_face(const std::string& directory, const models::ModelFamily& family,
                                           const nlohmann::json& keys, const std::vector<HeldTensor>& held,
                                           const std::map<std::string, int>& coordinates);

// Whole tensors under Hugging Face's names and in their orientation.
TensorDict to_hugging_face(const std::vector<models::TensorName>& names, const TensorDict& tensors);

// Writes config.json and model.safetensors; makes the directory.
void save_hugging_face(const std::string& directory, const nlohmann::json& config, const TensorDict& tensors);

}  // namespace gantry
