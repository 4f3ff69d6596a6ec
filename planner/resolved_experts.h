// The effect of expert parallelism in a configuration: the experts of each rank, and the bytes of an all-to-all.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/core/shard_spec.h"

namespace gantry::planner {

struct ResolvedExperts {
  std::int64_t experts = 1, used = 1, layers = 1;  // per layer, per token, and the layers with experts
  std::vector<Range> held;                         // by ep rank
  // Bytes that a rank sends to other ranks in one all-to-all of a microbatch if experts are chosen evenly. Each layer
  // has two in the forward (dispatch, combine) and two in the backward. 0: the number of tokens is unknown.
  std::int64_t bytes = 0;
};

// Empty if parallel.expert is 1. `samples`: the size of a microbatch, 0 without data. The model has at least as many
// experts as ranks (models::require_ranks).
std::optional<ResolvedExperts> resolve_experts(const Config& config, const nlohmann::json& model_keys, int samples);

}  // namespace gantry::planner
