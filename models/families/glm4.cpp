#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Norms before and after each part, a fused gate, half of each head turns in adjacent pairs.
DecoderSpec read_glm4(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 151552,
                                          .width = 13696,
                                          .layers = 40,
                                          .key_heads = 2,
                                          .head_size = 128,
                                          .positions = 131072,
                                          .eps = 1.5625e-7,
                                          .rotated = 0.5,
                                          .padding = 151329,
                                          .paired = true});
  const bool bias = reader.flag("attention_bias", true);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = bias;
    layer.after_attention = layer.after_mlp = spec.norm;
    layer.mlp.fused_gate = true;
  }
  spec.names.after_attention = "post_self_attn_layernorm";
  spec.names.after_mlp = "post_mlp_layernorm";
  spec.names.fused_gate = "mlp.gate_up_proj";
  return spec;
}

}  // namespace

DecoderFamily glm4_family() { return {.model_type = "glm4", .architecture = "Glm4ForCausalLM", .read = read_glm4}; }

}  // namespace gantry::models
