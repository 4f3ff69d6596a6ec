// What `gantry plan` prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "gantry/planner/config.h"
#include "gantry/planner/estimate.h"
#include "gantry/planner/search.h"

namespace gantry::cli {

// step_seconds, tokens_per_second, mfu, memory_bytes (of each pipeline rank), bubble, seconds by part, fits.
nlohmann::ordered_json estimate_json(const planner::Estimate& estimate);
std::string estimate_text(const planner::PlanRequest& request, const planner::Layout& layout,
                          const planner::Cluster& cluster, const planner::Estimate& estimate);

// `best`: of each layout its keys as overrides, what estimate_json() has, and the largest parts of its step; and how
// many layouts were looked at.
nlohmann::ordered_json plan_json(const planner::SearchResult& found);
// A table, a row each.
std::string plan_text(const planner::SearchResult& found, const planner::Cluster& cluster, int top);
// Two layouts part by part.
std::string comparison_text(const planner::PlannedLayout& one, const planner::PlannedLayout& other);

}  // namespace gantry::cli
