#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// The default if config.json has no keys of the rotary embedding.
nn::RotaryOptions apertus_rotary(std::int64_t head_size) {
  nn::RotaryOptions rotary{.theta = 12000000, .rotated = head_size};
  rotary.type = "llama3";
  rotary.factor = 8;
  rotary.original_positions = 8192;
  return rotary;
}

// Llama with norms of heads, and MLPs without a gate whose activation has trained slopes.
DecoderSpec read_apertus(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 131072,
                                          .width = 14336,
                                          .positions = 65536,
                                          .eps = 1e-5,
                                          .theta = 12000000,
                                          .padding = 3,
                                          .activation_key = "",
                                          .activation = kTrainedActivation});
  if (!reader.has("rope_parameters") && !reader.has("rope_scaling"))
    spec.rotaries = {apertus_rotary(spec.layers.front().attention.head_size)};
  const bool bias = reader.flag("attention_bias", false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.attention.head_norm = spec.norm;
    layer.mlp.gated = false;
  }
  spec.names.input = "attention_layernorm";
  spec.names.before_mlp = "feedforward_layernorm";
  reader.only("hidden_act", kTrainedActivation, "Gantry has no apertus with another activation");
  reader.only("qk_norm", true, "transformers has no apertus without norms of heads");
  reader.only("mlp_bias", false, "transformers has no apertus with biases in its MLPs");
  reader.only("post_norm", false, "transformers has no other apertus");
  return spec;
}

}  // namespace

DecoderFamily apertus_family() {
  FileNames files;
  files.scalars = {"mlp.act_fn.beta", "mlp.act_fn.eps"};
  return {.model_type = "apertus", .architecture = "ApertusForCausalLM", .read = read_apertus, .files = files};
}

}  // namespace gantry::models
