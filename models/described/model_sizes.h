// The sizes of a model of any family from the keys of its config.json, without building it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gantry::models {

struct ModelSizes {
  std::int64_t layers = 0;  // sum of encoder and decoder layers
  std::int64_t hidden = 0, heads = 0, key_heads = 0;
  std::int64_t fewest_heads = 0;  // the fewest of any stack or tower; 0: a decoder
  std::int64_t vocabulary = 0;    // 0: the model does not read tokens
  std::int64_t positions = 0;     // maximum number of tokens; 0: no limit
  std::int64_t experts = 0, used_experts = 0;
  double parameters = 0;  // a tied weight counts once
};

// `model_type` is one of family_readers(). Throws ConfigError like the family's reader.
ModelSizes model_sizes(const std::string& model_type, const nlohmann::json& keys);

// A line about a family with its default sizes: "decoder, rotary positions, grouped KV heads, 128 experts".
std::string family_features(const std::string& model_type);

}  // namespace gantry::models
