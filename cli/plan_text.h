// The output of `gantry plan`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "gantry/planner/config.h"
#include "gantry/planner/estimate.h"
#include "gantry/planner/search.h"

namespace gantry::cli {

// Returns step_seconds, tokens_per_second, mfu, memory_bytes (per pipeline rank), bubble, seconds by part, and fits.
nlohmann::ordered_json estimate_json(const planner::Estimate& estimate);
std::string estimate_text(const planner::PlanRequest& request, const planner::Layout& layout,
                          const planner::Cluster& cluster, const planner::Estimate& estimate);

// Returns `best`, which has for each layout its overrides, the members of estimate_json() and the largest parts of its
// step, and the numbers of layouts that the search examined.
nlohmann::ordered_json plan_json(const planner::SearchResult& found);
// Returns a table with one row per layout.
std::string plan_text(const planner::SearchResult& found, const planner::Cluster& cluster, int top);
// Compares two layouts part by part.
std::string comparison_text(const planner::PlannedLayout& one, const planner::PlannedLayout& other);

}  // namespace gantry::cli
