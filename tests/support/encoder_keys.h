// config.json of small models with encoders. Numbers of heads, widths and vocabularies are not divisible by 3
// ranks.
#pragma once

#include <nlohmann/json.hpp>

namespace gantry::testing {

inline nlohmann::json small_vit_keys() {
  return {{"hidden_size", 12},       {"num_attention_heads", 4}, {"num_hidden_layers", 2},
          {"intermediate_size", 11}, {"image_size", 6},          {"patch_size", 2}};
}

inline nlohmann::json small_t5_keys(int decoder_layers) {
  return {{"vocab_size", 23},
          {"d_model", 12},
          {"d_kv", 5},
          {"d_ff", 11},
          {"num_heads", 4},
          {"num_layers", 2},
          {"num_decoder_layers", decoder_layers},
          {"relative_attention_num_buckets", 4}};
}

inline nlohmann::json small_whisper_keys() {
  return {{"vocab_size", 23},
          {"d_model", 12},
          {"encoder_attention_heads", 3},
          {"decoder_attention_heads", 4},
          {"encoder_ffn_dim", 11},
          {"decoder_ffn_dim", 10},
          {"encoder_layers", 2},
          {"decoder_layers", 1},
          {"num_mel_bins", 6},
          {"max_source_positions", 9},
          {"max_target_positions", 8},
          {"pad_token_id", 1}};
}

}  // namespace gantry::testing
