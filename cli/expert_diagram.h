// How `gantry config` shows experts over ranks: who has which of them, and what an all-to-all sends.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/core/shard_spec.h"

namespace gantry::cli {

struct ExpertPicture {
  std::int64_t experts = 1, used = 1, layers = 1;  // of a layer, of a token, and layers that have some
  std::vector<Range> held;                         // by rank of ep
  // That a rank sends to others in one all-to-all of a microbatch's rows, where experts are chosen evenly. Each layer
  // has one there and one back, and as many in the backward. 0: no data say how many tokens there are.
  std::int64_t bytes = 0;
};

// Absent where parallel.expert is 1. `samples`: of a microbatch, 0 without data. ConfigError where the model has no
// experts, or fewer than ranks.
std::optional<ExpertPicture> picture_experts(const Config& config, const nlohmann::json& model_keys, int samples);

std::string to_text(const std::optional<ExpertPicture>& picture);
nlohmann::ordered_json to_json(const ExpertPicture& picture);

}  // namespace gantry::cli
