// What ZeRO 3 costs beside its table: gathers of parameters, what of them is whole at once, and replicas of shards.
#pragma once

#include "gantry/planner/collectives.h"
#include "gantry/planner/layout_costs.h"

namespace gantry::planner {

// Ranks that share a parameter's rows, those of context first, and those that hold the same rows (core/row_shards.h).
Group shard_group(const Layout& layout);
Group shard_replicas_group(const Layout& layout);
// The same of experts over ranks.
Group expert_shard_group(const Layout& layout);
Group expert_shard_replicas_group(const Layout& layout);

// "step", "window" or "microbatch": auto as the runtime takes it.
std::string gather_of(const Layout& layout);
// How often a step gathers a rank's parameters.
double gathers_of_step(const Layout& layout, int microbatches, int stages_of_rank);

// Of a rank's parameters the elements that are whole at once, in values, and in gradients, which stand from a stage's
// first backward to its last.
struct WholeElements {
  double values = 0, gradients = 0;
  double in_place_of_activations = 0;  // of the gradients: those on their way when a layer's activations have gone
};
WholeElements whole_elements(const Layout& layout, const LayoutCosts& costs, int rank);

}  // namespace gantry::planner
