#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Llama with layer norms that have no parameters.
DecoderSpec read_olmo(ConfigReader& reader) {
  DecoderSpec spec =
      read_common(reader, {.vocabulary = 50304,
                           .padding = 1,
                           .eps_key = "",
                           .norm = {.kind = NormSpec::Kind::kLayer, .eps = 1e-5, .weight = false, .bias = false}});
  const bool bias = reader.flag("attention_bias", false);
  const double clip = reader.number_or_none("clip_qkv", 0, 0, 1e9);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.attention.clip = clip;
  }
  return spec;
}

}  // namespace

DecoderFamily olmo_family() { return {.model_type = "olmo", .architecture = "OlmoForCausalLM", .read = read_olmo}; }

}  // namespace gantry::models
