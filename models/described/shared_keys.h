// The keys of config.json that every family reads in the same way.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gantry/models/described/config_reader.h"

namespace gantry::models {

// Reads model_type, the two spellings of the dtype, cross-attention and the quantisation of the weights. Throws
// ConfigError that names the kind of quantisation, unless the weights are fp8 in blocks, in four bits by bitsandbytes,
// or MXFP4 of gpt_oss.
void read_shared_keys(ConfigReader& reader, bool has_cross_attention);

// Returns the dtype of the weights that config.json or its text_config states, "bfloat16"; "" for none and for an
// unknown one.
std::string stated_dtype(const nlohmann::json& keys);

// Returns the rows and columns of the blocks of fp8 weights that share a scale; absent for other weights.
std::optional<std::array<std::int64_t, 2>> fp8_block(const nlohmann::json& keys);

}  // namespace gantry::models
