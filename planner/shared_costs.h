// Costs that many layouts of one search have in common, made once.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gantry/planner/layout_costs.h"
#include "gantry/planner/lower_bound_of_sizes.h"

namespace gantry::planner {

class SharedCosts {
 public:
  struct Placed {
    SchedulePlan plan;
    std::vector<int> layers;
  };

  // Both must outlive it.
  SharedCosts(const Workload& workload, const Cluster& cluster) : workload_(workload), cluster_(cluster) {}

  LayoutCosts of(const Layout& layout, const Placed& placed);
  // Stages don't depend on the number of microbatches. ConfigError where a schedule or a distribution refuses.
  const Placed& placed(const Layout& layout);
  PipelineRun run_of(const Layout& layout, const LayoutCosts& costs);
  const PassTotals& totals(const Layout& sizes, const std::vector<Recompute>& recomputations);

 private:
  using Sizes = std::tuple<int, int, int, int, bool>;
  static Sizes sizes_of(const Layout& layout) {
    return {layout.tensor, layout.context, layout.expert, layout.microbatch, layout.sequence_parallel};
  }
  const CostTable& table(const Layout& layout);
  const schedule::Schedule& vocabulary_schedule(const Layout& layout, int microbatches);

  const Workload& workload_;
  const Cluster& cluster_;
  std::map<Sizes, std::unique_ptr<CostTable>> tables_;
  std::map<Sizes, PassTotals> totals_;
  std::map<std::tuple<std::string, int, int>, SchedulePlan> plans_;
  std::map<std::tuple<std::vector<std::vector<int>>, bool, bool>, std::vector<int>> layers_;
  std::map<std::tuple<std::string, int, int, bool, bool>, std::unique_ptr<Placed>> placed_;
  std::map<std::tuple<std::string, int, int, int>, schedule::Schedule> with_vocabulary_;
  std::size_t kept_actions_ = 0;
};

}  // namespace gantry::planner
