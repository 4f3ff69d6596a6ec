#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Llama with norms of queries and keys per head, after the rotary embedding.
DecoderSpec read_hunyuan_v1_dense(ConfigReader& reader) {
  DecoderSpec spec =
      read_common(reader, {.vocabulary = 290943, .eps = 1e-5, .alpha_changes_theta = true, .padding = 0});
  reader.only("use_qk_norm", true, "transformers has no other hunyuan_v1_dense");
  reader.only("use_cla", false, "Gantry does not share keys and values between layers");
  const bool bias = reader.flag("attention_bias", false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.attention.head_norm = spec.norm;
    layer.attention.norm_after_rotary = true;
  }
  spec.names.query_norm = "self_attn.query_layernorm";
  spec.names.key_norm = "self_attn.key_layernorm";
  return spec;
}

}  // namespace

DecoderFamily hunyuan_v1_dense_family() {
  return {.model_type = "hunyuan_v1_dense",
          .architecture = "HunYuanDenseV1ForCausalLM",
          .read = read_hunyuan_v1_dense,
          .files = {},
          .harmless = {"eod_token_id", "pretraining_tp"}};
}

}  // namespace gantry::models
