#include "gantry/planner/estimate.h"

#include <algorithm>

#include "gantry/core/error.h"
#include "gantry/models/described/model_flops.h"
#include "gantry/planner/costs.h"
#include "gantry/planner/operations.h"

namespace gantry::planner {
namespace {

constexpr double kRounding = 1e-12;  // fraction of a step below which a wait is rounding

// The costs of a possible layout. Throws ConfigError with the text of objection() otherwise.
struct KnownCosts {
  SchedulePlan plan;
  LayoutCosts costs;
};
KnownCosts known_costs(const Workload& workload, const Layout& layout, const Cluster& cluster) {
  if (const auto refused = objection(workload, layout, cluster))
    throw ConfigError({"layout", *refused, "sizes that are compatible", ""});
  KnownCosts known{.plan = schedule_plan(layout, layout.microbatches_of(workload.batch)), .costs = {}};
  known.costs = make_layout_costs(workload, layout, cluster, make_cost_table(workload, layout, cluster),
                                  known.plan.stages_of_rank, layers_of(workload, layout, known.plan.stages_of_rank));
  return known;
}

}  // namespace

Seconds& Seconds::operator+=(const Seconds& more) {
  compute += more.compute;
  tensor += more.tensor;
  context += more.context;
  expert += more.expert;
  pipeline += more.pipeline;
  data += more.data;
  optimizer += more.optimizer;
  return *this;
}

Seconds Seconds::times(double count) const {
  return {compute * count,  tensor * count, context * count,  expert * count,
          pipeline * count, data * count,   optimizer * count};
}

double Estimate::most_memory() const {
  double most = 0;
  for (const Memory& rank : memory) most = std::max(most, rank.sum());
  return most;
}

Estimate estimate_with(const Workload& workload, const Layout& layout, const Cluster& cluster, const LayoutCosts& costs,
                       const PipelineRun& run) {
  Estimate result;
  int longest = 0;
  double most = -1;
  for (int rank = 0; rank < static_cast<int>(run.activations.size()); ++rank) {
    const OnceSeconds once = once_seconds(workload, layout, cluster, costs, rank);
    const double work = work_of(costs, rank).sum() + once.data + once.optimizer;
    if (work > most) most = work, longest = rank;
    result.memory.push_back(rank_memory(workload, layout, costs, rank, run.activations[rank]));
  }
  const OnceSeconds once = once_seconds(workload, layout, cluster, costs, longest);
  result.seconds = work_of(costs, longest);
  const double waited = run.seconds - result.seconds.sum();
  if (waited > kRounding * run.seconds) result.seconds.pipeline += waited;
  result.seconds.data = once.data;
  result.seconds.optimizer = once.optimizer + once.other;
  result.step_seconds = result.seconds.sum();
  const auto samples = static_cast<double>(workload.batch), tokens = samples * static_cast<double>(workload.sequence);
  result.tokens_per_second = tokens / result.step_seconds;
  const double peak = cluster.device.matrix_flops.at(workload.precision) * layout.ranks();
  result.mfu = models::model_flops(workload.model, workload.batch, workload.sequence) / result.step_seconds / peak;
  result.bubble = run.bubble;
  result.fits = result.most_memory() <= cluster.device.memory_bytes;
  return result;
}

std::optional<std::string> objection(const Workload& workload, const Layout& layout, const Cluster& cluster) {
  if (auto refused = sizes_objection(workload, layout, cluster)) return refused;
  try {
    layers_of(workload, layout, schedule_plan(layout, layout.microbatches_of(workload.batch)).stages_of_rank);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return std::nullopt;
}

Estimate estimate(const Workload& workload, const Layout& layout, const Cluster& cluster) {
  const LayoutCosts costs = known_costs(workload, layout, cluster).costs;
  return estimate_with(workload, layout, cluster, costs, run_pipeline(workload, layout, costs));
}

double least_seconds(const Workload& workload, const Layout& layout, const Cluster& cluster) {
  const KnownCosts known = known_costs(workload, layout, cluster);
  return least_seconds_with(workload, layout, cluster, known.costs, known.plan.splits_backward);
}

LayerSeconds layer_seconds(const Workload& workload, const models::LayerSpec& layer, const Layout& layout,
                           const Cluster& cluster) {
  Workload alone = workload;
  alone.model.layers = {layer};
  alone.model.vision.reset();
  const PartCosts part = make_cost_table(alone, layout, cluster).layers.front();
  LayerSeconds seconds{part.forward, part.input_gradient, part.weight_gradient, {}};
  if (const auto* again = computed_again(part, layout.recompute)) seconds.again = *again;
  return seconds;
}

double kept_bytes(const Workload& workload, const models::LayerSpec& layer, const Layout& layout) {
  return kept_with(layer_operations(workload, layer, layout), layout.recompute);
}

}  // namespace gantry::planner
