#include <cmath>
#include <fmt/format.h>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/vision_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Gemma with four norms per layer, norms of queries and keys per head, and windows in five of six layers.
DecoderSpec read_gemma3_text(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 262208,
                                          .hidden = 2304,
                                          .width = 9216,
                                          .layers = 26,
                                          .heads = 8,
                                          .key_heads = 4,
                                          .head_size = 256,
                                          .positions = 131072,
                                          .theta = 1000000,
                                          .padding = 0,
                                          .tied = true,
                                          .activation_key = "hidden_activation",
                                          .activation = "gelu_pytorch_tanh",
                                          .rotary_of_each_kind = true});
  make_gemma(spec);
  if (reader.number_or_none("attn_logit_softcapping", 0, 0, 1e6) > 0) reader.pass_over("attn_logit_softcapping");
  const bool bias = reader.flag("attention_bias", false);
  const double scale = 1 / std::sqrt(reader.number("query_pre_attn_scalar", 256, 1e-6, 1e9));
  reader.only("use_bidirectional_attention", false, "decoders of Gantry are causal");
  // These are in older files, which have neither layer_types nor a mapping for each kind of layers.
  for (const char* key : {"sliding_window_pattern", "rope_local_base_freq"}) reader.ignore(key);
  spec.rotaries.push_back(
      window_rotary(reader, spec, number_key(reader.keys(), "rope_local_base_freq", 10000, 1, 1e12)));
  const std::int64_t period = size_key(reader.keys(), "sliding_window_pattern", 6);
  read_windows(reader, spec, reader.size_or_none("sliding_window", 4096),
               [&](std::size_t layer) { return static_cast<std::int64_t>(layer + 1) % period != 0; });
  for (LayerSpec& layer : spec.layers) {
    layer.after_attention = layer.after_mlp = layer.attention.head_norm = spec.norm;
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.attention.scale = scale;
    layer.attention.rotary = layer.attention.window > 0 ? 1 : 0;
  }
  spec.logit_soft_cap = reader.number_or_none("final_logit_softcapping", 0, 0, 1e6);
  spec.names.after_attention = "post_attention_layernorm";
  spec.names.before_mlp = "pre_feedforward_layernorm";
  spec.names.after_mlp = "post_feedforward_layernorm";
  return spec;
}

// transformers caps the logits of the text models only.
DecoderSpec read_gemma3(ConfigReader& reader) {
  DecoderSpec spec = read_gemma3_text(reader);
  if (spec.logit_soft_cap > 0) reader.pass_over("final_logit_softcapping");
  spec.logit_soft_cap = 0;
  return spec;
}

VisionSpec read_gemma3_vision(ConfigReader& reader, const DecoderSpec& /*text*/) {
  VisionSpec vision = read_siglip_vision(reader);
  const std::int64_t tokens = reader.size("mm_tokens_per_image", 256);
  vision.pooled_side = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(tokens))));
  if (vision.pooled_side * vision.pooled_side != tokens || vision.grid() % vision.pooled_side != 0)
    refuse_key("mm_tokens_per_image", tokens,
               fmt::format("the square of a divisor of {}, the number of patches along a side", vision.grid()));
  vision.image_token = reader.size("image_token_index", 262144, 0);
  vision.both_directions = true;
  return vision;
}

}  // namespace

DecoderFamily gemma3_text_family() {
  return {.model_type = "gemma3_text",
          .architecture = "Gemma3ForCausalLM",
          .read = read_gemma3_text,
          .harmless = {"hidden_act", "cache_implementation", "_sliding_window_pattern"}};
}

// Gemma 3 of 4 billion parameters and more.
DecoderFamily gemma3_family() {
  return {
      .model_type = "gemma3",
      .architecture = "Gemma3ForConditionalGeneration",
      .read = read_gemma3,
      .read_vision = read_gemma3_vision,
      .files = language_model_files(),
      .harmless = {"hidden_act", "cache_implementation", "_sliding_window_pattern", "boi_token_index",
                   "eoi_token_index", "image_token_index", "initializer_range", "mm_tokens_per_image", "vision_config"},
      .small = {{"text_config", small_keys()}},
      .tower = TowerKeys{.text_types = {"gemma3_text"}, .tied = true}};
}

}  // namespace gantry::models
