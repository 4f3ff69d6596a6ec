#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Attention and an MLP without a gate are parallel after one layer norm. All projections and the head have biases.
DecoderSpec read_phi(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 51200,
                                          .hidden = 2048,
                                          .width = 8192,
                                          .layers = 24,
                                          .eps = 1e-5,
                                          .rotated = 0.5,
                                          .activation = "gelu_new",
                                          .eps_key = "layer_norm_eps",
                                          .norm = {NormSpec::Kind::kLayer}});
  const bool norms_heads = reader.flag("qk_layernorm", false);
  for (LayerSpec& layer : spec.layers) {
    layer.parallel = true;
    layer.before_mlp = {};
    layer.attention.bias = layer.attention.output_bias = layer.mlp.bias = true;
    layer.mlp.gated = false;
    if (norms_heads) layer.attention.head_norm = spec.norm;
  }
  spec.head_bias = true;
  spec.embedding_dropout = reader.number("embd_pdrop", 0, 0, 1);
  spec.output_dropout = reader.number("resid_pdrop", 0, 0, 1);
  spec.names.dropout = "embed_dropout";
  spec.names.norm = "final_layernorm";
  spec.names.query_norm = "self_attn.q_layernorm";
  spec.names.key_norm = "self_attn.k_layernorm";
  spec.names.output = "self_attn.dense";
  spec.names.output_dropout = "resid_attn_dropout";
  spec.names.up = "mlp.fc1";
  spec.names.down = "mlp.fc2";
  spec.names.mlp_dropout = "resid_mlp_dropout";
  return spec;
}

}  // namespace

DecoderFamily phi_family() { return {.model_type = "phi", .architecture = "PhiForCausalLM", .read = read_phi}; }

}  // namespace gantry::models
