// What no layout of the same sizes can beat, whatever its schedule, recomputation and states: so a search passes over
// thousands of them at once.
#pragma once

#include <vector>

#include "gantry/planner/layout_costs.h"

namespace gantry::planner {

// Of a CostTable, for bounds. The ends are embedding and head.
struct PassTotals {
  double layers = 0, ends = 0;  // seconds of one microbatch, forward and backward
  double least_forward = 0;     // of a layer
  double least_held = 0;        // bytes of a layer in its backward, by the recomputation that needs least
  HeldParameters in_layers, in_ends;
};
PassTotals pass_totals(const CostTable& table, const std::vector<Recompute>& recomputations);

// What of it holds for a search: the vocabulary may be shared, or stages may have no layer.
struct OpenPlacement {
  bool may_share_vocabulary = false, may_leave_stages_empty = false;
};

// The mean rank's work, what it waits at the start, and what a step does besides: the longest rank has no less.
double least_seconds_of_sizes(const Workload& workload, const Layout& sizes, const Cluster& cluster,
                              const PassTotals& totals, const OpenPlacement& placement);
// Of the mean rank, with whichever of `zeros` needs least.
double least_bytes_of_sizes(const Workload& workload, const Layout& sizes, const PassTotals& totals,
                            const OpenPlacement& placement, const std::vector<int>& zeros);

}  // namespace gantry::planner
