// Llama as Hugging Face has it: configuration keys and tensor names.
#pragma once

#include "gantry/models/llama.h"
#include "gantry/models/model_family.h"

namespace gantry::models {

// ConfigError for wrong types and values Llama here can't do; keys that do not change the mathematics are ignored. The
// rotary embedding is read from rope_parameters, or from the older rope_theta and rope_scaling.
LlamaConfig llama_config(const nlohmann::json& config);
ModelFamily llama_family();

}  // namespace gantry::models
