// Applies a shard plan to the modules of a model.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "gantry/policies/model_map.h"
#include "gantry/policies/policy.h"

namespace gantry {

// The axes over which modules are sharded.
struct PlanAxes {
  ShardAxes layers;                       // axes of the ranks that have parts of each layer
  std::optional<ShardAxes> experts = {};  // axes for partitioned experts; absent: there are none
  std::optional<ShardAxes> apart = {};    // axes for the modules at `paths`
  std::vector<std::string> paths = {};
};

// Shards every module that a rule reaches, and returns the placements of their parameters by path.
// Throws ConfigError before anything is sharded if a rule matches nothing or if two rules name the same
// module. If the plan makes activations sequence shards, a rule must reach every parameter, because nothing
// else defines how its gradient is reduced. The error for a parameter without a rule contains the rule to
// add. All other errors name the rule and the path (see shard_model), for example if a module returns
// placements over other axes than those that it received.
Placements apply_plan(const ModelMap& map, const ShardPlan& plan, const PlanAxes& axes);

// Resolves a policy's plan. `sum` sets the time at which partial gradients are reduced. With sequence
// parallelism, borders of sharded modules without a layout become sequence shards. Without sequence shards,
// the rules that only they need are omitted. `dispatch`: of partitioned experts; absent: experts are sharded
// like other layers.
ShardPlan resolve_plan(const ShardPlan& plan, bool sequence_parallel, GradientSum sum,
                       const std::optional<ExpertDispatch>& dispatch = std::nullopt);

}  // namespace gantry
