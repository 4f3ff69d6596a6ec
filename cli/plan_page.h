// A plan as a page: one HTML file in the style of a run's report, without scripts.
#pragma once

#include <string>
#include <vector>

#include "gantry/planner/plan.h"
#include "gantry/planner/search.h"

namespace gantry::cli {

struct PlanPage {
  std::string name;  // of the configuration
  planner::Cluster cluster;
  std::vector<planner::PlannedLayout> best;   // the fastest first
  std::vector<planner::PlannedLayout> front;  // that none beats in both time and memory
  std::vector<planner::WhatIf> changes;
};

// Time and memory of the best layouts stacked by part, the front, and what changes would give. Every text is escaped.
std::string plan_page(const PlanPage& plan);

}  // namespace gantry::cli
