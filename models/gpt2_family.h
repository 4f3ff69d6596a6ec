// GPT-2 as Hugging Face has it: configuration keys, tensor names and their orientation.
#pragma once

#include "gantry/models/gpt2.h"
#include "gantry/models/model_family.h"

namespace gantry::models {

// ConfigError for wrong types and values GPT-2 here can't do; keys that do not change the mathematics are ignored.
Gpt2Config gpt2_config(const nlohmann::json& config);
ModelFamily gpt2_family();

}  // namespace gantry::models
