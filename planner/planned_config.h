// What `gantry train` and `gantry config` make of a configuration some of whose keys say auto.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "gantry/planner/cluster.h"
#include "gantry/planner/configured.h"

namespace gantry::planner {

struct PlannedConfig {
  Config config;     // with the best layout's values
  std::string text;  // "plan for 2 ranks of here: tensor 2, ..., 0.31 s a step (24 layouts)\n"
};

// `request`: read_auto_request() of the same file and overrides. `cluster`: of the ranks that will run. ConfigError as
// of require_layouts().
PlannedConfig planned_config(const std::string& path, const std::vector<std::string>& sets, const PlanRequest& request,
                             const Cluster& cluster);

// UsageError: keys say auto, and `command` was told no cluster.
[[noreturn]] void refuse_without_cluster(const std::string& command, const std::set<std::string>& keys);

// "estimate for 2 ranks of here: tensor 2, ..., 0.31 s a step\n" of a configuration that leaves nothing open but
// parallel.data. ConfigError as of plan_request(), with_ranks() and estimate().
std::string estimate_line(const Config& config, const std::string& cluster);

}  // namespace gantry::planner
