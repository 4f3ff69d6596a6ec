// What most families share, so that a family's file says only what it has of its own.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "gantry/models/described/config_reader.h"
#include "gantry/models/described/decoder_spec.h"

namespace gantry::models {

// What a family's class gives where config.json is silent, and the names of keys that differ.
struct CommonDefaults {
  std::int64_t vocabulary = 32000, hidden = 4096, width = 11008, layers = 32, heads = 32;
  std::int64_t key_heads = 0;  // 0: as many as heads
  std::int64_t head_size = 0;  // 0: hidden / heads
  std::int64_t positions = 2048;
  double eps = 1e-6;
  double theta = 10000;
  double rotated = 1;                   // the part of a head that turns
  std::int64_t original_positions = 0;  // 0: positions
  std::optional<std::int64_t> padding;  // where config.json has no pad_token_id
  bool tied = false;
  std::string activation_key = "hidden_act", activation = "silu";
  std::string eps_key = "rms_norm_eps";
  NormSpec norm = {NormSpec::Kind::kRms};  // of the layers and at the end; eps from its key
  bool paired = false;                     // RotaryOptions::paired
  double initializer_range = 0.02;
};
// Sizes by hidden_size, num_hidden_layers, num_attention_heads, ...; serial layers, a gated MLP with separate
// projections, one rotary embedding. ConfigError as of ConfigReader.
DecoderSpec read_common(ConfigReader& reader, const CommonDefaults& defaults);

// Gives a window to the layers that layer_types names, or, without it, to those that `slides` says.
void read_windows(ConfigReader& reader, DecoderSpec& spec, std::int64_t window,
                  const std::function<bool(std::size_t layer)>& slides);
// The rotary embedding of layers with a window, where it differs from the others': of its own mapping in
// rope_parameters, else of this base and without scaling.
nn::RotaryOptions window_rotary(ConfigReader& reader, const DecoderSpec& spec, double theta);
void set_window_of_all(DecoderSpec& spec, std::int64_t window);

}  // namespace gantry::models
