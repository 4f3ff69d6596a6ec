// What `gantry plan` prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "gantry/planner/configured.h"
#include "gantry/planner/estimate.h"

namespace gantry::cli {

// step_seconds, tokens_per_second, mfu, memory_bytes (of each pipeline rank), bubble, seconds by part, fits.
nlohmann::ordered_json estimate_json(const planner::Estimate& estimate);
std::string estimate_text(const planner::PlanRequest& request, const planner::Layout& layout,
                          const planner::Cluster& cluster, const planner::Estimate& estimate);

}  // namespace gantry::cli
