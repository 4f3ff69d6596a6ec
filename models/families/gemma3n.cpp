#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

using nlohmann::json;

constexpr std::size_t kSparseLayers = 10;  // in models with more layers
constexpr double kSparsity = 0.95;

// The last num_kv_shared_layers layers use the keys and values of the last layer of their kind before them.
void read_shared_keys_of_layers(ConfigReader& reader, DecoderSpec& spec) {
  const auto layers = static_cast<std::int64_t>(spec.layers.size());
  const std::int64_t shared = reader.size("num_kv_shared_layers", 15, 0);
  for (std::int64_t index = std::max<std::int64_t>(layers - shared, 0); index < layers; ++index) {
    AttentionSpec& attention = spec.layers[index].attention;
    for (std::int64_t other = layers - shared - 1; other >= 0 && attention.keys_of < 0; --other)
      if (spec.layers[other].attention.window == attention.window) attention.keys_of = static_cast<int>(other);
    if (attention.keys_of < 0)
      refuse_key("num_kv_shared_layers", shared, "fewer layers, so that each kind of layer_types precedes them");
  }
}

void read_sparsity(ConfigReader& reader, DecoderSpec& spec) {
  std::vector<double> pattern = reader.numbers("activation_sparsity_pattern", spec.layers.size(), 0, 1);
  if (pattern.empty()) {
    pattern.assign(spec.layers.size(), 0);
    if (pattern.size() > kSparseLayers) std::fill_n(pattern.begin(), kSparseLayers, kSparsity);
  }
  for (std::size_t index = 0; index < spec.layers.size(); ++index) spec.layers[index].mlp.sparsity = pattern[index];
  reader.decides("activation_sparsity_pattern", pattern);
}

void read_streams(ConfigReader& reader, DecoderSpec& spec) {
  const AltUpSpec altup{.streams = reader.size("altup_num_inputs", 4),
                        .active = reader.size("altup_active_idx", 0, 0),
                        .clip = reader.number_or_none("altup_coef_clip", 120, 0, 1e9),
                        .scaled = reader.flag("altup_correct_scale", true)};
  if (altup.active >= altup.streams) refuse_key("altup_active_idx", altup.active, "a number below altup_num_inputs");
  spec.layer_inputs = {.vocabulary = reader.size("vocab_size_per_layer_input", 262144),
                       .width = reader.size("hidden_size_per_layer_input", 256),
                       .layers = static_cast<std::int64_t>(spec.layers.size())};
  spec.streams = altup.streams;
  const std::int64_t rank = reader.size("laurel_rank", 64);
  for (LayerSpec& layer : spec.layers) {
    layer.altup = altup;
    layer.laurel_rank = rank;
    layer.input_width = spec.layer_inputs->width;
  }
}

// Layers of Gemma 3 that pass several streams on, with embeddings of their own, and keys that layers share.
DecoderSpec read_gemma3n(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 262400,
                                          .hidden = 2048,
                                          .width = 16384,
                                          .layers = 35,
                                          .heads = 8,
                                          .key_heads = 2,
                                          .head_size = 256,
                                          .width_of_each_layer = true,
                                          .positions = 32768,
                                          .theta = 1000000,
                                          .padding = 0,
                                          .tied = true,
                                          .activation_key = "hidden_activation",
                                          .activation = "gelu_pytorch_tanh",
                                          .rotary_of_each_kind = true});
  const bool bias = reader.flag("attention_bias", false);
  reader.ignore("rope_local_base_freq");  // in older files, which have no mapping for each kind of layers
  spec.rotaries.push_back(
      window_rotary(reader, spec, number_key(reader.keys(), "rope_local_base_freq", 10000, 1, 1e12)));
  read_windows(reader, spec, reader.size_or_none("sliding_window", 512),
               [](std::size_t layer) { return (layer + 1) % 5 != 0; });
  NormSpec of_values = spec.norm;
  of_values.weight = false;
  for (LayerSpec& layer : spec.layers) {
    layer.after_attention = layer.after_mlp = layer.attention.head_norm = spec.norm;
    layer.attention.value_norm = of_values;
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.attention.scale = 1;
    layer.attention.rotary = layer.attention.window > 0 ? 1 : 0;
  }
  read_shared_keys_of_layers(reader, spec);
  read_sparsity(reader, spec);
  read_streams(reader, spec);
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden));
  spec.logit_soft_cap = reader.number_or_none("final_logit_softcapping", 30, 0, 1e6);
  spec.names.after_attention = "post_attention_layernorm";
  spec.names.before_mlp = "pre_feedforward_layernorm";
  spec.names.after_mlp = "post_feedforward_layernorm";
  return spec;
}

// Tokens of images and sounds have embeddings in other parts of the model.
std::int64_t read_text_tokens(const json& keys) {
  return size_key(keys.value("vision_config", json::object()), "vocab_offset", 262144);
}

json small_gemma3n_keys() {
  json keys = small_keys();
  keys.update({{"layer_types", {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
               {"num_kv_shared_layers", 2},
               {"vocab_size_per_layer_input", 256},
               {"hidden_size_per_layer_input", 16},
               {"laurel_rank", 8},
               {"sliding_window", 64}});
  return keys;
}

}  // namespace

DecoderFamily gemma3n_text_family() {
  return {.model_type = "gemma3n_text",
          .architecture = "Gemma3nForCausalLM",
          .read = read_gemma3n,
          .harmless = {"altup_lr_multiplier", "cache_implementation", "hidden_act", "query_pre_attn_scalar"},
          .small = small_gemma3n_keys()};
}

// The text decoder of Gemma 3n, whose images and sounds are not read.
DecoderFamily gemma3n_family() {
  return {.model_type = "gemma3n",
          .architecture = "Gemma3nForConditionalGeneration",
          .read = read_gemma3n,
          .files = {.prefix = "model.language_model.",
                    .renamed = {},
                    .transposed = {},
                    .by_row = {},
                    .other_parts = {"vision_tower", "audio_tower", "embed_vision", "embed_audio"}},
          .harmless = {"altup_lr_multiplier", "audio_config", "audio_soft_tokens_per_image", "audio_token_id",
                       "boa_token_id", "boi_token_id", "cache_implementation", "eoa_token_id", "eoi_token_id",
                       "hidden_act", "image_token_id", "initializer_range", "query_pre_attn_scalar", "vision_config",
                       "vision_soft_tokens_per_image"},
          .small = {{"text_config", small_gemma3n_keys()}},
          .tower = TowerKeys{.text_types = {"gemma3n_text"}, .tied = true, .text_tokens = read_text_tokens}};
}

}  // namespace gantry::models
