#include "gantry/planner/lower_bound_of_sizes.h"

#include <algorithm>

#include "gantry/core/planted.h"
#include "gantry/core/zero_level.h"
#include "gantry/planner/collectives.h"
#include "gantry/planner/operations.h"
#include "gantry/planner/recomputed_part.h"
#include "gantry/planner/shard_parameters.h"

namespace gantry::planner {
namespace {

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

PassTotals pass_totals(const CostTable& table, const std::vector<Recompute>& recomputations) {
  PassTotals totals{.least_forward = 1e300, .least_held = 1e300};
  for (const PartCosts& layer : table.layers) {
    totals.layers += seconds_of_pass(layer);
    totals.least_forward = std::min(totals.least_forward, layer.forward.sum());
    for (const Recompute how : recomputations)
      totals.least_held = std::min(totals.least_held, kept_with(layer, how) + made_again(layer, how) + layer.working);
  }
  totals.ends = seconds_of_pass(table.embedding) + seconds_of_pass(table.head);
  for (const HeldParameters& layer : table.parameters.layers) totals.in_layers += layer;
  totals.in_ends = table.parameters.first;
  totals.in_ends += table.parameters.last;
  totals.in_ends.dense -= table.parameters.tied;
  totals.in_ends.trained_dense -= table.parameters.trained_tied;
  return totals;
}

// A rank waits for its first stage until a microbatch has come through those before, of which each has a layer.
double least_seconds_of_sizes(const Workload& workload, const Layout& sizes, const Cluster& cluster,
                              const PassTotals& totals, const OpenPlacement& placement) {
  const double pass = totals.layers + (placement.may_share_vocabulary ? 0 : totals.ends);
  const double waited = sizes.layers.empty() ? (sizes.pipeline - 1) / 2.0 * totals.least_forward : 0;
  const int ranks = planted("bound-of-one-rank") ? 1 : sizes.pipeline;
  return sizes.microbatches_of(workload.batch) * pass / ranks + waited + cluster.step_seconds;
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
