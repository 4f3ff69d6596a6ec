#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Llama with a bias of its own for the output of attention, and dropout after attention and MLP.
DecoderSpec read_seed_oss(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 155136,
                                          .width = 27648,
                                          .layers = 64,
                                          .heads = 80,
                                          .key_heads = 8,
                                          .head_size = 128,
                                          .positions = 524288,
                                          .padding = 1});
  const bool bias = reader.flag("attention_bias", true), output_bias = reader.flag("attention_out_bias", false);
  const bool mlp_bias = reader.flag("mlp_bias", false);
  const double dropout = reader.number("attention_dropout", 0.1, 0, 1);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = bias;
    layer.attention.output_bias = output_bias;
    layer.attention.dropout = dropout;
    layer.mlp.bias = mlp_bias;
  }
  spec.output_dropout = reader.number("residual_dropout", 0.1, 0, 1);
  spec.names.output_dropout = "self_attn.residual_dropout";
  spec.names.mlp_dropout = "mlp.residual_dropout";
  return spec;
}

}  // namespace

DecoderFamily seed_oss_family() {
  return {.model_type = "seed_oss",
          .architecture = "SeedOssForCausalLM",
          .read = read_seed_oss,
          .files = {},
          .harmless = {"pretraining_tp"}};
}

}  // namespace gantry::models
