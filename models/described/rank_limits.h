// The numbers of ranks that can share the layers of a model, from the keys of its config.json. `gantry config` and the
// programs that build the model check the same limits. Independent of LibTorch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gantry/core/config.h"
#include "gantry/models/described/decoder_spec.h"

namespace gantry::models {

// The largest number of ranks, and the parts of a layer that they share: "2 query heads".
struct RankLimit {
  std::int64_t ranks = 0;
  std::string shared;
};

// The limit of parallel.tensor by the layers with the fewest heads, including those of an image encoder; empty: there
// are no layers.
std::optional<RankLimit> tensor_limit(const DecoderSpec& spec);

// Throws ConfigError if parallel.tensor is above the number of heads, or parallel.expert above the number of experts.
// `family`: the name of the policy; empty: model_type of the keys. Families that are not Gantry's are not checked.
// Throws ConfigError if the family does not support the values of the keys.
void require_ranks(const nlohmann::json& model_keys, const std::string& family, const ParallelConfig& parallel);

}  // namespace gantry::models
