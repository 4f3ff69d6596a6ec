#include "gantry/planner/shared_costs.h"

#include <utility>

#include "gantry/planner/shared_vocabulary.h"
#include "gantry/schedule/validate.h"

namespace gantry::planner {
namespace {

// A table of a hundred layers takes some 30 KiB, and there are thousands in a large search.
constexpr std::size_t kMostTables = 512;
// Schedules with passes of the vocabulary take long to make, and some MiB each.
constexpr std::size_t kMostActions = 2'000'000;

}  // namespace

LayoutCosts SharedCosts::of(const Layout& layout, const Placed& placed) {
  return make_layout_costs(workload_, layout, cluster_, table(layout), placed.plan.stages_of_rank, placed.layers);
}

const SharedCosts::Placed& SharedCosts::placed(const Layout& layout) {
  auto& entry = placed_[{layout.schedule, layout.pipeline, layout.chunks, layout.balanced, layout.shares_vocabulary}];
  if (entry) return *entry;
  const std::tuple schedule{layout.schedule, layout.pipeline, layout.chunks};
  if (!plans_.contains(schedule)) plans_[schedule] = schedule_plan(layout, 2 * layout.pipeline);
  auto made = std::make_unique<Placed>();
  made->plan = plans_[schedule];
  const std::tuple lies{made->plan.stages_of_rank, layout.balanced, layout.shares_vocabulary};
  if (!layers_.contains(lies)) layers_[lies] = layers_of(workload_, layout, made->plan.stages_of_rank);
  made->layers = layers_[lies];
  entry = std::move(made);
  return *entry;
}

PipelineRun SharedCosts::run_of(const Layout& layout, const LayoutCosts& costs) {
  const auto* known = costs.vocabulary ? &vocabulary_schedule(layout, costs.microbatches) : nullptr;
  return run_pipeline(workload_, layout, costs, known);
}

// It depends on no times.
const schedule::Schedule& SharedCosts::vocabulary_schedule(const Layout& layout, int microbatches) {
  const std::tuple sizes{layout.schedule, layout.pipeline, layout.chunks, microbatches};
  const auto found = with_vocabulary_.find(sizes);
  if (found != with_vocabulary_.end()) return found->second;
  schedule::Schedule made = schedule_with_vocabulary(workload_, layout, microbatches);
  schedule::validate(made);
  std::size_t actions = 0;
  for (const auto& row : made.actions) actions += row.size();
  if (kept_actions_ + actions > kMostActions) with_vocabulary_.clear(), kept_actions_ = 0;
  kept_actions_ += actions;
  return with_vocabulary_[sizes] = std::move(made);
}

const PassTotals& SharedCosts::totals(const Layout& sizes, const std::vector<Recompute>& recomputations) {
  const auto found = totals_.find(sizes_of(sizes));
  if (found != totals_.end()) return found->second;
  const PassTotals made = pass_totals(make_cost_table(workload_, sizes, cluster_), recomputations);
  return totals_[sizes_of(sizes)] = made;
}

const CostTable& SharedCosts::table(const Layout& layout) {
  const auto found = tables_.find(sizes_of(layout));
  if (found != tables_.end()) return *found->second;
  if (tables_.size() >= kMostTables) tables_.clear();
  auto made = std::make_unique<CostTable>(make_cost_table(workload_, layout, cluster_));
  return *(tables_[sizes_of(layout)] = std::move(made));
}

}  // namespace gantry::planner
