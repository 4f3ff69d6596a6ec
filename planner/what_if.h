// What a plan would be with less memory, or with more of something: each is a search of its own.
#pragma once

#include <string>
#include <vector>

#include "gantry/planner/search.h"

namespace gantry::planner {

// The layouts that none beats in both time and memory, the fastest first; at most so many of them.
std::vector<PlannedLayout> pareto_front(const PlanRequest& request, const Cluster& cluster, int most);

struct WhatIf {
  std::string change;  // "1 GiB more memory"
  PlannedLayout best;
};
// The best layouts with a GiB more of each device, and with links of twice the rate within hosts and, where there are
// several, between them. Where nothing fits there is no entry.
std::vector<WhatIf> what_if(const PlanRequest& request, const Cluster& cluster);

}  // namespace gantry::planner
