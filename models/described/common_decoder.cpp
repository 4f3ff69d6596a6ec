#include "gantry/models/described/common_decoder.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/rotary_keys.h"

namespace gantry::models {
namespace {

using nlohmann::json;

void check_heads(const AttentionSpec& attention, std::int64_t hidden, bool follows) {
  if (follows) require_multiple_of_heads("hidden_size", hidden, "num_attention_heads", attention.heads);
  if (attention.heads % attention.key_heads != 0)
    refuse_key("num_key_value_heads", attention.key_heads,
               fmt::format("a divisor of num_attention_heads {}", attention.heads));
}

AttentionSpec read_attention(ConfigReader& reader, std::int64_t hidden, const CommonDefaults& defaults) {
  AttentionSpec attention;
  attention.heads = reader.size("num_attention_heads", defaults.heads);
  // Without a key the family's default applies. An explicit null is derived from the other sizes, as in transformers.
  const bool has_default = defaults.key_heads > 0 && !reader.keys().contains("num_key_value_heads");
  attention.key_heads = reader.size("num_key_value_heads", has_default ? defaults.key_heads : attention.heads);
  const bool is_derived = defaults.head_size == 0 || reader.keys().contains("head_dim");
  const bool follows = is_derived && !reader.has("head_dim");
  check_heads(attention, hidden, follows);
  attention.head_size = hidden / attention.heads;
  if (!follows) attention.head_size = reader.size("head_dim", defaults.head_size);
  reader.ignore("head_dim");
  attention.rotary = 0;
  attention.dropout = reader.number("attention_dropout", 0, 0, 1);
  return attention;
}

}  // namespace

DecoderSpec read_common(ConfigReader& reader, const CommonDefaults& defaults) {
  DecoderSpec spec;
  spec.vocabulary = reader.size("vocab_size", defaults.vocabulary);
  spec.hidden = reader.size("hidden_size", defaults.hidden);
  NormSpec norm = defaults.norm;
  if (!defaults.eps_key.empty()) norm.eps = reader.number(defaults.eps_key, defaults.eps, 0, 1);
  LayerSpec layer{
      .input = norm, .after_attention = {}, .before_mlp = norm, .after_mlp = {}, .attention = {}, .mlp = {}};
  if (!defaults.width_of_each_layer) layer.mlp.width = reader.size("intermediate_size", defaults.width);
  layer.mlp.gated = true;
  layer.mlp.activation = defaults.activation_key.empty()
                             ? defaults.activation
                             : reader.activation(defaults.activation_key, defaults.activation);
  const std::int64_t layers = reader.size("num_hidden_layers", defaults.layers);
  layer.attention = read_attention(reader, spec.hidden, defaults);
  spec.positions = reader.size("max_position_embeddings", defaults.positions);
  spec.rotaries = {
      rotary_options(reader, layer.attention.head_size, spec.positions,
                     {defaults.theta, defaults.rotated, defaults.original_positions, defaults.yarn_is_longrope,
                      defaults.alpha_changes_theta, defaults.rows, defaults.sections, defaults.rotary_of_each_kind})};
  spec.rotaries[0].paired = defaults.paired;
  spec.unlimited_positions = spec.rotaries[0].type == "dynamic";
  spec.layers.assign(static_cast<std::size_t>(layers), layer);
  if (defaults.width_of_each_layer) {
    const auto widths = reader.sizes("intermediate_size", spec.layers.size(), defaults.width);
    for (std::size_t index = 0; index < spec.layers.size(); ++index) spec.layers[index].mlp.width = widths[index];
  }
  spec.norm = norm;
  spec.initializer_range = reader.number("initializer_range", defaults.initializer_range, 0, 100);
  spec.tied = reader.flag("tie_word_embeddings", defaults.tied);
  spec.padding = read_padding(reader, spec.vocabulary, defaults.padding);
  return spec;
}

nn::RotaryOptions window_rotary(ConfigReader& reader, const DecoderSpec& spec, double theta) {
  const std::int64_t head_size = spec.layers.at(0).attention.head_size;
  if (!has_rotary_for_each_kind(reader)) return {.theta = theta, .rotated = head_size};
  return rotary_options(reader, head_size, spec.positions, {.theta = theta, .of_each_kind = true}, "sliding_attention");
}

void set_window_of_all(DecoderSpec& spec, std::int64_t window) {
  for (LayerSpec& layer : spec.layers) layer.attention.window = window;
}

void read_windows(ConfigReader& reader, DecoderSpec& spec, std::int64_t window,
                  const std::function<bool(std::size_t layer)>& slides) {
  const auto types = reader.words("layer_types", spec.layers.size(), {"full_attention", "sliding_attention"});
  json windows = json::array();
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    const bool sliding = types.empty() ? slides(index) : types[index] == "sliding_attention";
    if (sliding && window == 0)
      refuse_key("sliding_window", nullptr, "a number of tokens, because layer_types contains sliding_attention");
    spec.layers[index].attention.window = sliding ? window : 0;
    windows.push_back(sliding ? window : 0);
  }
  reader.decides("windows", windows);
}

std::optional<std::int64_t> read_padding(ConfigReader& reader, std::int64_t vocabulary,
                                         std::optional<std::int64_t> missing) {
  if (!reader.keys().contains("pad_token_id")) return missing && *missing < vocabulary ? missing : std::nullopt;
  if (!reader.has("pad_token_id")) return std::nullopt;
  const std::int64_t padding = reader.size("pad_token_id", 0, -vocabulary);
  if (padding >= vocabulary) refuse_key("pad_token_id", padding, fmt::format("below vocab_size {}", vocabulary));
  return padding < 0 ? padding + vocabulary : padding;
}

}  // namespace gantry::models
