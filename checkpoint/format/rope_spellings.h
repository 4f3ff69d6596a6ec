// The two spellings of rotary keys in config.json: rope_theta with rope_scaling, which transformers 4, vLLM and
// llama.cpp read, and rope_parameters of transformers 5. Without LibTorch.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace gantry {

// Adds the missing spelling, with the values of the other one. A configuration with both, or without rotary
// keys, is unchanged. The older spelling of rope_parameters for each kind of layer exists for Gemma 3
// (rope_local_base_freq), and if sliding layers are not scaled and have the same rope_theta. The keys in
// text_config, which describe the text decoder of a larger model, are treated in the same way.
void complete_rope_spellings(nlohmann::json& config);

}  // namespace gantry
