// Lower bounds of time and memory: of a layout, and of all layouts with the same sizes.
#include <algorithm>

#include "gantry/core/sharding/zero_level.h"
#include "gantry/planner/collectives.h"
#include "gantry/planner/costs.h"
#include "gantry/planner/operations.h"

namespace gantry::planner {
namespace {

// For each stage: the time until the first microbatch has passed the stages before it. If backwards are not split, this
// includes the time in which the last microbatch passes these stages backwards.
std::vector<double> waiting_before(const LayoutCosts& costs, bool splits_backward, double hop) {
  std::vector<int> rank_of_stage(costs.stages.size());
  for (std::size_t rank = 0; rank < costs.stages_of_rank.size(); ++rank)
    for (const int stage : costs.stages_of_rank[rank]) rank_of_stage[stage] = static_cast<int>(rank);
  std::vector<double> waiting(costs.stages.size(), 0);
  for (std::size_t stage = 1; stage < waiting.size(); ++stage) {
    const StageTimes& before = costs.stages[stage - 1];
    const double passed = rank_of_stage[stage] == rank_of_stage[stage - 1] ? 0 : hop;
    waiting[stage] = waiting[stage - 1] + before.forward.sum() + passed;
    if (!splits_backward) waiting[stage] += before.backward() + passed;
  }
  return waiting;
}

double seconds_of_pass(const PartCosts& part) {
  return part.forward.sum() + part.input_gradient.sum() + part.weight_gradient.sum();
}

double state_bytes(const Workload& workload, const Layout& sizes, const HeldParameters& held, int level) {
  const ZeroLevel& zero = zero_level(level);
  const double replicas = (zero.parameters ? shard_group(sizes) : batch_group(sizes)).size;
  const double expert_replicas = (zero.parameters ? expert_shard_group(sizes) : expert_batch_group(sizes)).size;
  const auto bytes = [&](double each, double dense, double experts, bool is_partitioned) {
    return each * (is_partitioned ? dense / replicas + experts / expert_replicas : dense + experts);
  };
  return bytes(value_bytes(workload.precision), held.dense, held.experts, zero.parameters) +
         bytes(workload.program.gradient_bytes, held.trained_dense, held.trained_experts, zero.gradients) +
         bytes(workload.program.optimizer_bytes, held.trained_dense, held.trained_experts, zero.states);
}

}  // namespace

// The passes of a shared head run after a microbatch has passed all stages, so they are not in a rank's wait at the
// start. The passes before a backward are not in its wait at the end either.
double least_pipeline_seconds(const Workload& workload, const LayoutCosts& costs, bool splits_backward) {
  const double hop = workload.program.blocking_messages ? 0 : costs.hop;
  const std::vector<double> waiting = waiting_before(costs, splits_backward, hop),
                            until_first = waiting_before(costs, /*splits_backward=*/true, hop);
  double heads = 0, before_backward = 0;
  if (const auto& shared = costs.vocabulary) {
    before_backward = costs.microbatches * (shared->head_forward.sum() + shared->head_combine.sum());
    heads = before_backward + costs.microbatches * shared->head_backward.sum();
  }
  double least = 0;
  for (std::size_t rank = 0; rank < costs.stages_of_rank.size(); ++rank) {
    const int index = static_cast<int>(rank), first = std::ranges::min(costs.stages_of_rank[rank]);
    const double staged = stage_work_of(costs, index).sum();
    least = std::max({least, work_of(costs, index).sum(), staged + waiting[first] + before_backward,
                      staged + until_first[first] + heads});
  }
  return least;
}

double least_seconds_with(const Workload& workload, const Layout& layout, const Cluster& cluster,
                          const LayoutCosts& costs, bool splits_backward) {
  double once = 0, most = -1;
  for (int rank = 0; rank < static_cast<int>(costs.stages_of_rank.size()); ++rank) {
    const OnceSeconds of_rank = once_seconds(workload, layout, cluster, costs, rank);
    const double work = work_of(costs, rank).sum() + of_rank.data + of_rank.optimizer;
    if (work > most) most = work, once = of_rank.data + of_rank.optimizer + of_rank.other;
  }
  return least_pipeline_seconds(workload, costs, splits_backward) + once;
}

double least_memory_with(const Workload& workload, const Layout& layout, const LayoutCosts& costs) {
  double most = 0;
  for (std::size_t rank = 0; rank < costs.stages_of_rank.size(); ++rank) {
    double kept = 0;
    for (const int stage : costs.stages_of_rank[rank]) kept = std::max(kept, costs.stages[stage].kept);
    if (costs.vocabulary) kept = std::max(kept, costs.vocabulary->kept);
    most = std::max(most, rank_memory(workload, layout, costs, static_cast<int>(rank), kept).sum());
  }
  return most;
}

PassTotals pass_totals(const CostTable& table, const std::vector<Recompute>& recomputations) {
  PassTotals totals{.least_forward = 1e300, .least_held = 1e300};
  for (const PartCosts& layer : table.layers) {
    totals.layers += seconds_of_pass(layer);
    totals.least_forward = std::min(totals.least_forward, layer.forward.sum());
    for (const Recompute how : recomputations)
      totals.least_held = std::min(totals.least_held, kept_with(layer, how) + made_again(layer, how) + layer.working);
  }
  for (const PartCosts* end : {&table.patches, &table.features, &table.embedding, &table.head})
    totals.ends += seconds_of_pass(*end);
  for (const HeldParameters& layer : table.parameters.layers) totals.in_layers += layer;
  const ModelParameters& parameters = table.parameters;
  for (const HeldParameters* end : {&parameters.patches, &parameters.features, &parameters.first, &parameters.last})
    totals.in_ends += *end;
  totals.in_ends.remove_tied(table.parameters);
  return totals;
}

// A rank waits until a microbatch has passed the stages before its first stage, and each of these has a layer.
double least_seconds_of_sizes(const Workload& workload, const Layout& sizes, const Cluster& cluster,
                              const PassTotals& totals, const OpenPlacement& placement) {
  const double pass = totals.layers + (placement.may_share_vocabulary ? 0 : totals.ends);
  const double waited = sizes.layers.empty() ? (sizes.pipeline - 1) / 2.0 * totals.least_forward : 0;
  return sizes.microbatches_of(workload.batch) * pass / sizes.pipeline + waited + cluster.step_seconds;
}

double least_bytes_of_sizes(const Workload& workload, const Layout& sizes, const PassTotals& totals,
                            const OpenPlacement& placement, const std::vector<int>& zeros) {
  HeldParameters held = totals.in_layers;
  if (!placement.may_share_vocabulary) held += totals.in_ends;
  double least = 1e300;
  for (const int zero : zeros) least = std::min(least, state_bytes(workload, sizes, held, zero));
  return least / sizes.pipeline + (placement.may_leave_stages_empty ? 0 : totals.least_held);
}

}  // namespace gantry::planner
