#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Layer norms, an MLP without a gate, biases everywhere.
DecoderSpec read_starcoder2(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 49152,
                                          .hidden = 3072,
                                          .width = 12288,
                                          .layers = 30,
                                          .heads = 24,
                                          .key_heads = 2,
                                          .positions = 4096,
                                          .eps = 1e-5,
                                          .tied = true,
                                          .activation = "gelu_pytorch_tanh",
                                          .eps_key = "norm_epsilon",
                                          .norm = {NormSpec::Kind::kLayer},
                                          .initializer_range = 0.018042});
  const bool bias = reader.flag("use_bias", true);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = layer.mlp.bias = bias;
    layer.mlp.gated = false;
  }
  set_window_of_all(spec, reader.size_or_none("sliding_window", 0));
  spec.embedding_dropout = reader.number("embedding_dropout", 0, 0, 1);
  spec.output_dropout = reader.number("residual_dropout", 0, 0, 1);
  spec.names.dropout = "embed_dropout";
  spec.names.up = "mlp.c_fc";
  spec.names.down = "mlp.c_proj";
  spec.names.output_dropout = "self_attn.residual_dropout";
  spec.names.mlp_dropout = "mlp.residual_dropout";
  return spec;
}

}  // namespace

DecoderFamily starcoder2_family() {
  return {.model_type = "starcoder2", .architecture = "Starcoder2ForCausalLM", .read = read_starcoder2};
}

}  // namespace gantry::models
