// Times and bytes of a schedule some of whose layers are computed again: of each stage the first so many.
#pragma once

#include <vector>

#include "gantry/planner/layout_costs.h"
#include "gantry/planner/operations.h"
#include "gantry/schedule/schedule.h"
#include "gantry/schedule/simulate.h"

namespace gantry::planner {

class RecomputeCosts {
 public:
  // `layers`: of each stage. Times are multiplications. The schedule is not owned.
  RecomputeCosts(const Workload& workload, const Layout& layout, const schedule::Schedule& schedule,
                 std::vector<int> layers);

  int ranks() const { return schedule_.ranks(); }
  int stages() const { return static_cast<int>(layers_.size()); }
  int layers_of(int stage) const { return layers_[stage]; }
  const std::vector<int>& stages_of(int rank) const { return schedule_.stages_of_rank[rank]; }

  // `counts`: of each stage. A rank's memory depends on its own stages alone.
  Memory memory(int rank, Recompute how, const std::vector<int>& counts) const;
  schedule::Costs costs(Recompute how, const std::vector<int>& counts) const;
  double makespan(Recompute how, const std::vector<int>& counts) const;

 private:
  schedule::StageCosts stage_costs(int stage, Recompute how, int count) const;
  double working(int stage, Recompute how, int count) const;
  double peak(int rank, Recompute how, const std::vector<int>& counts) const;

  const Workload& workload_;
  Layout layout_;
  const schedule::Schedule& schedule_;
  std::vector<int> layers_, first_layer_;  // by stage
  std::vector<PartOperations> parts_;      // by layer
  PartOperations embedding_, head_;
  LayoutCosts held_;  // the stages' parameters
};

}  // namespace gantry::planner
