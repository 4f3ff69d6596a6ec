// Reads vision_config of models that read images and text.
#pragma once

#include "gantry/models/described/config_reader.h"
#include "gantry/models/described/decoder_spec.h"

namespace gantry::models {

// The sizes of the layers of a tower, in the mapping of its keys. Absent keys have the values in `tower`.
void read_tower_sizes(ConfigReader& keys, TowerSpec& tower);

// The towers of CLIP and SigLIP, with the defaults of transformers for absent keys.
VisionSpec read_clip_tower(ConfigReader& reader);
VisionSpec read_siglip_tower(ConfigReader& reader);

// SigLIP's tower, with a norm after its layers. Throws ConfigError if config.json has no vision_config.
VisionSpec read_siglip_vision(ConfigReader& reader);

// The tower of Qwen2.5-VL. Throws the same error, or if its features do not have the width of the decoder.
VisionSpec read_qwen2_5_vision(ConfigReader& reader, const DecoderSpec& text);

// CLIP's tower with the layers up to vision_feature_layer, and a projector of two linear layers (LLaVA 1.5). Throws the
// same error.
VisionSpec read_llava_vision(ConfigReader& reader, const DecoderSpec& text);

// Pixtral's tower, with the layers up to vision_feature_layer, and the projector of Mistral 3. Throws the same error.
VisionSpec read_mistral3_vision(ConfigReader& reader, const DecoderSpec& text);

}  // namespace gantry::models
