#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Layer norms whose scale is 1 + weight, and an MLP with squared relu and without a gate. Half of each head is rotated.
DecoderSpec read_nemotron(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 256000,
                                          .hidden = 6144,
                                          .width = 24576,
                                          .heads = 48,
                                          .positions = 4096,
                                          .eps = 1e-5,
                                          .rotated = 0.5,
                                          .activation = "relu2",
                                          .eps_key = "norm_eps",
                                          .norm = {.kind = NormSpec::Kind::kLayer, .one_plus_weight = true},
                                          .initializer_range = 0.0134});
  const bool bias = reader.flag("attention_bias", false), mlp_bias = reader.flag("mlp_bias", false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.mlp.bias = mlp_bias;
    layer.mlp.gated = false;
  }
  return spec;
}

}  // namespace

DecoderFamily nemotron_family() {
  return {.model_type = "nemotron", .architecture = "NemotronForCausalLM", .read = read_nemotron};
}

}  // namespace gantry::models
