// Reads the configuration keys that most decoder families share.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gantry/models/described/config_reader.h"
#include "gantry/models/described/decoder_spec.h"

namespace gantry::models {

// The family's defaults for keys that are missing in config.json, and the names of keys that differ between families.
struct CommonDefaults {
  std::int64_t vocabulary = 32000, hidden = 4096, width = 11008, layers = 32, heads = 32;
  std::int64_t key_heads = 0;        // 0: equal to heads
  std::int64_t head_size = 0;        // 0: hidden / heads
  bool width_of_each_layer = false;  // intermediate_size may be a list
  std::int64_t positions = 2048;
  double eps = 1e-6;
  double theta = 10000;
  std::optional<double> rotated;        // see RotaryDefaults::fraction
  std::int64_t original_positions = 0;  // 0: equal to positions
  bool yarn_is_longrope = false;        // see RotaryDefaults::yarn_is_longrope
  bool alpha_changes_theta = false;     // see RotaryDefaults::alpha_changes_theta
  std::optional<std::int64_t> padding;  // if config.json has no pad_token_id
  bool tied = false;
  std::string activation_key = "hidden_act", activation = "silu";  // empty key: config.json has no such key
  std::string eps_key = "rms_norm_eps";
  NormSpec norm = {NormSpec::Kind::kRms};  // norm of the layers and of the output; eps is read from eps_key
  bool paired = false;                     // see RotaryOptions::paired
  nn::PositionRows rows = nn::PositionRows::kOne;
  std::vector<std::int64_t> sections = {};  // mrope_section, see RotaryOptions::sections
  bool rotary_of_each_kind = false;         // see RotaryDefaults::of_each_kind
  double initializer_range = 0.02;
};
// Reads sizes from hidden_size, num_hidden_layers, num_attention_heads, ... for a decoder with serial layers, a gated
// MLP with separate projections, and one rotary embedding. Throws ConfigError like ConfigReader.
DecoderSpec read_common(ConfigReader& reader, const CommonDefaults& defaults);

// Returns pad_token_id, where -1 is the last token of `vocabulary`, or `missing` if there is no such key. Empty for
// null, and for a `missing` outside of the vocabulary. Throws ConfigError for another token outside of the vocabulary.
std::optional<std::int64_t> read_padding(ConfigReader& reader, std::int64_t vocabulary,
                                         std::optional<std::int64_t> missing);

// Sets the attention window of the layers that layer_types lists as sliding or, without layer_types, of those for which
// `slides` returns true. Throws ConfigError if a layer should have a window, but `window` is 0.
void read_windows(ConfigReader& reader, DecoderSpec& spec, std::int64_t window,
                  const std::function<bool(std::size_t layer)>& slides);
// Returns the rotary embedding of layers with a window if it differs from that of other layers: from its own mapping in
// rope_parameters, or else with base `theta` and without scaling.
nn::RotaryOptions window_rotary(ConfigReader& reader, const DecoderSpec& spec, double theta);
void set_window_of_all(DecoderSpec& spec, std::int64_t window);

}  // namespace gantry::models
