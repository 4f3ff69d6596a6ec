#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/planner/estimate.h"
#include "gantry/planner/layout_costs.h"
#include "gantry/planner/operations.h"
#include "gantry/planner/recomputed_part.h"
#include "gantry/planner/shared_vocabulary.h"

namespace gantry::planner {

std::optional<std::string> sizes_objection(const Workload& workload, const Layout& layout, const Cluster& cluster) {
  const auto& model = workload.model;
  if (!cluster.device.matrix_flops.contains(workload.precision))
    return fmt::format("cluster {} states no matrix rate for precision {}", cluster.name, workload.precision);
  if (layout.ranks() != cluster.ranks())
    return fmt::format("tensor {} * pipeline {} * context {} * data {} = {} ranks, and {} hosts of {} devices have {}",
                       layout.tensor, layout.pipeline, layout.context, layout.data, layout.ranks(), cluster.hosts,
                       cluster.per_host, cluster.ranks());
  for (const auto& layer : model.layers)
    if (layout.tensor > layer.attention.heads)
      return fmt::format("tensor {} is above the {} heads", layout.tensor, layer.attention.heads);
  if (workload.batch < layout.data)
    return fmt::format("{} samples over data {} leave {} replicas without one", workload.batch, layout.data,
                       layout.data - workload.batch);
  if (const auto samples = (workload.batch + layout.data - 1) / layout.data; samples < layout.microbatch)
    return fmt::format("microbatches of {} samples are above the {} of a replica ({} / data {})", layout.microbatch,
                       samples, workload.batch, layout.data);
  if (workload.sequence % (std::int64_t{2} * layout.context) != 0 && layout.context > 1)
    return fmt::format("{} tokens do not divide by 2 * context {}", workload.sequence, layout.context);
  if (layout.data * layout.context * layout.tensor % layout.expert != 0)
    return fmt::format("expert {} does not divide data {} * context {} * tensor {}", layout.expert, layout.data,
                       layout.context, layout.tensor);
  const auto experts = std::find_if(model.layers.begin(), model.layers.end(),
                                    [](const auto& layer) { return layer.experts.has_value(); });
  if (layout.expert > 1 && experts == model.layers.end())
    return fmt::format("expert {}, and the model has no experts", layout.expert);
  if (layout.expert > 1 && layout.tensor > 1 && !layout.sequence_parallel)
    return fmt::format("expert {} with tensor {} needs parallel.sequence_parallel true", layout.expert, layout.tensor);
  if (layout.shard > 0 && layout.data * layout.context % layout.shard != 0)
    return fmt::format("shard {} does not divide data {} * context {}", layout.shard, layout.data, layout.context);
  if (const int sharing = layout.shard * layout.tensor; sharing > layout.expert && sharing % layout.expert != 0)
    return fmt::format("shard {} * tensor {} is no multiple of expert {}", layout.shard, layout.tensor, layout.expert);
  if (const auto refused = vocabulary_objection(workload, layout)) return *refused;
  if (layout.expert > 1 && layout.expert > experts->experts->count)
    return fmt::format("expert {} is above the {} experts of a layer", layout.expert, experts->experts->count);
  return std::nullopt;
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
  if (const auto refused = objection(workload, layout, cluster))
    throw ConfigError({"the layout", *refused, "sizes that fit each other", ""});
  const auto stages = schedule_plan(layout, layout.microbatches_of(workload.batch)).stages_of_rank;
  const LayoutCosts costs = make_layout_costs(workload, layout, cluster, make_cost_table(workload, layout, cluster),
                                              stages, layers_of(workload, layout, stages));
  return estimate_with(workload, layout, cluster, costs, run_pipeline(workload, layout, costs));
}

double least_seconds(const Workload& workload, const Layout& layout, const Cluster& cluster) {
  if (const auto refused = objection(workload, layout, cluster))
    throw ConfigError({"the layout", *refused, "sizes that fit each other", ""});
  const SchedulePlan plan = schedule_plan(layout, layout.microbatches_of(workload.batch));
  const LayoutCosts costs = make_layout_costs(workload, layout, cluster, make_cost_table(workload, layout, cluster),
                                              plan.stages_of_rank, layers_of(workload, layout, plan.stages_of_rank));
  return least_seconds_with(workload, layout, cluster, costs, plan.splits_backward);
}

LayerSeconds layer_seconds(const Workload& workload, const models::LayerSpec& layer, const Layout& layout,
                           const Cluster& cluster) {
  Workload alone = workload;
  alone.model.layers = {layer};
  const PartCosts part = make_cost_table(alone, layout, cluster).layers.front();
  LayerSeconds seconds{part.forward, part.input_gradient, part.weight_gradient, {}};
  if (const auto* again = computed_again(part, layout.recompute)) seconds.again = *again;
  return seconds;
}

double kept_bytes(const Workload& workload, const models::LayerSpec& layer, const Layout& layout) {
  return kept_with(layer_operations(workload, layer, layout), layout.recompute);
}

}  // namespace gantry::planner
