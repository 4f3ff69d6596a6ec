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

// A policy's plan as it is applied: partial gradients are summed where `sum` says, and with sequence
// parallelism the borders of split modules become sequence shards, and modules that follow the sequence get
// SequenceParallel{} where no rule names them. Without it, rules that only sequence parallelism needs are left out.
ShardPlan resolve_plan(const ShardPlan& plan, const ModelMap& map, bool sequence_parallel, GradientSum sum);

// Under sequence parallelism, parameters of modules that nobody named see sequence shards as well: their gradients are
// partial sums.
void add_unruled(const ModelMap& map, const ShardPlan& plan, std::map<std::string, AxisPlacement>& placements);

}  // namespace gantry
