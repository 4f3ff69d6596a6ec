// Results that need a search: the plan of a configuration with keys set to auto, trade-offs and alternatives.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "gantry/planner/cluster.h"
#include "gantry/planner/config.h"
#include "gantry/planner/search.h"

namespace gantry::planner {

struct PlannedConfig {
  Config config;     // with the values of the best layout
  std::string text;  // "plan for 2 ranks of here: tensor 2, ..., 0.31 s a step (24 layouts)\n"
};
// For `gantry train` and `gantry config`. `request`: read_auto_request() for the same file and overrides. `cluster`:
// has the ranks of the run. Throws ConfigError like require_layouts().
PlannedConfig planned_config(const std::string& path, const std::vector<std::string>& sets, const PlanRequest& request,
                             const Cluster& cluster);

// Throws UsageError, because `command` got keys that are auto, but no cluster.
[[noreturn]] void refuse_without_cluster(const std::string& command, const std::set<std::string>& keys);

// Returns "estimate for 2 ranks of here: tensor 2, ..., 0.31 s a step, 1.2 GiB on the fullest rank\n" for a
// configuration with no open key except parallel.data. Throws ConfigError like plan_request(), with_ranks() and
// estimate().
std::string estimate_line(const Config& config, const std::string& cluster);

// Layouts for which no other layout is better in both time and memory, the fastest first; at most `most` of them.
std::vector<PlannedLayout> pareto_front(const PlanRequest& request, const Cluster& cluster, int most);

struct WhatIf {
  std::string change;  // "1 GiB more memory"
  PlannedLayout best;
};
// The best layouts with 1 GiB more memory per device, with links of twice the rate within hosts and, if there are
// several hosts, between them. A change for which nothing fits is left out.
std::vector<WhatIf> what_if(const PlanRequest& request, const Cluster& cluster);

}  // namespace gantry::planner
