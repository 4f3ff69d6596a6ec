// A plan as one HTML page in the style of the run report, without scripts.
#pragma once

#include <string>
#include <vector>

#include "gantry/planner/search.h"
#include "gantry/planner/what_if.h"

namespace gantry::cli {

struct PlanPage {
  std::string name;  // name of the configuration
  planner::Cluster cluster;
  std::vector<planner::PlannedLayout> best;   // the fastest first
  std::vector<planner::PlannedLayout> front;  // Pareto front of step time and memory
  std::vector<planner::WhatIf> changes;
};

// Returns the page: time and memory of the best layouts by part, the Pareto front, and the effect of changes. All texts
// are escaped.
std::string plan_page(const PlanPage& plan);

}  // namespace gantry::cli
