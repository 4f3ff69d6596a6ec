// The two spellings of rotary keys in config.json: rope_theta with rope_scaling, which transformers 4, vLLM and
// llama.cpp read, and rope_parameters of transformers 5. Without LibTorch.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace gantry {

// Adds the spelling that is missing, with the values of the other. A configuration with both or without rotary keys is
// unchanged. rope_parameters for each kind of layer have an older spelling for Gemma 3 (rope_local_base_freq), and
// where sliding layers are not scaled and have the same rope_theta. The same for the keys in text_config, which are
// those of the text decoder of a larger model.
void complete_rope_spellings(nlohmann::json& config);

}  // namespace gantry
