// Applies a shard plan to the modules of a model.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "gantry/policies/model_map.h"
#include "gantry/policies/policy.h"

namespace gantry {

// What modules are split over.
struct PlanAxes {
  ShardAxes layers;                       // of the ranks that have parts of each layer
  std::optional<ShardAxes> experts = {};  // that partitioned experts lie over; absent: there are none
  std::optional<ShardAxes> apart = {};    // that the modules at these paths are split over
  std::vector<std::string> paths = {};
};

// Shards every module that a rule reaches, and gives the placements of their parameters by path. A module's own say
// over which axes they are: ConfigError for others than those that it was given. Where the plan makes
// activations sequence shards, a rule must reach every parameter: what nobody says of a gradient is not guessed.
// ConfigError, before anything is sharded, for a rule that matches nothing, a module that two rules name, and a
// parameter that no rule reaches, with the rule to write; naming rule and path, as sharder.h says, for the rest.
Placements apply_plan(const ModelMap& map, const ShardPlan& plan, const PlanAxes& axes);

// A policy's plan as it is applied: partial gradients are summed where `sum` says, and with sequence parallelism the
// borders of split modules that say nothing become sequence shards. Without sequence shards the rules that only they
// need are left out. `dispatch`: of experts that are partitioned; absent: they are split as other layers.
ShardPlan resolve_plan(const ShardPlan& plan, bool sequence_parallel, GradientSum sum,
                       const std::optional<ExpertDispatch>& dispatch = std::nullopt);

}  // namespace gantry
