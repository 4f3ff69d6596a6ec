// Applies a shard plan to the modules of a model.
#pragma once

#include <map>
#include <string>

#include "gantry/policies/model_map.h"
#include "gantry/policies/policy.h"

namespace gantry {

// Shards every module that a rule names, and gives the placements of their parameters by path. ConfigError, naming rule
// and path, as sharder.h says.
std::map<std::string, AxisPlacement> apply_plan(const ModelMap& map, const ShardPlan& plan, ProcessGroup& group);

}  // namespace gantry
