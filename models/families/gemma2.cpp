#include <cmath>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Norms before and after attention and MLP, scores and logits with a cap, every other layer with a window.
DecoderSpec read_gemma2(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 256000,
                                          .hidden = 2304,
                                          .width = 9216,
                                          .layers = 26,
                                          .heads = 8,
                                          .key_heads = 4,
                                          .head_size = 256,
                                          .positions = 8192,
                                          .padding = 0,
                                          .tied = true,
                                          .activation_key = "hidden_activation",
                                          .activation = "gelu_pytorch_tanh"});
  const bool bias = reader.flag("attention_bias", false);
  const double cap = reader.number_or_none("attn_logit_softcapping", 50, 0, 1e6);
  const double scale = 1 / std::sqrt(reader.number("query_pre_attn_scalar", 256, 1e-6, 1e9));
  reader.only("use_bidirectional_attention", false, "decoders of Gantry are causal");
  make_gemma(spec);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.attention.soft_cap = cap;
    layer.attention.scale = scale;
    layer.after_attention = layer.after_mlp = spec.norm;
  }
  spec.logit_soft_cap = reader.number_or_none("final_logit_softcapping", 30, 0, 1e6);
  spec.names.after_attention = "post_attention_layernorm";
  spec.names.before_mlp = "pre_feedforward_layernorm";
  spec.names.after_mlp = "post_feedforward_layernorm";
  read_windows(reader, spec, reader.size_or_none("sliding_window", 4096),
               [](std::size_t layer) { return layer % 2 == 0; });
  return spec;
}

}  // namespace

DecoderFamily gemma2_family() {
  return {.model_type = "gemma2",
          .architecture = "Gemma2ForCausalLM",
          .read = read_gemma2,
          .harmless = {"hidden_act", "cache_implementation"}};
}

}  // namespace gantry::models
