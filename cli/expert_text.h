// Expert parallelism in the output of `gantry config`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gantry/planner/resolved_experts.h"

namespace gantry::cli {

std::string to_text(const std::optional<planner::ResolvedExperts>& experts);
nlohmann::ordered_json to_json(const planner::ResolvedExperts& experts);

}  // namespace gantry::cli
