#include "gantry/planner/resolved_config.h"

#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "gantry/models/described/rank_limits.h"
#include "gantry/models/described/vision_modules.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/schedule/configured_schedule.h"
#include "gantry/schedule/stages/layers_per_stage.h"

namespace gantry::planner {
namespace {

// Forward, input gradient and weight gradient take equal times. The mean time of a rank is the time with equal stages.
schedule::Costs costs_by_work(const std::vector<double>& work, int ranks) {
  const double total = std::accumulate(work.begin(), work.end(), 0.0);
  schedule::Costs costs;
  for (const double of_stage : work) {
    const double share = of_stage / total * ranks;
    costs.stages.push_back({.forward = share, .input_gradient = share, .weight_gradient = share});
  }
  return costs;
}

ResolvedStep resolve_step(const Config& config, const ScheduleSource& source, int stages, int replicas,
                          const std::vector<double>& work) {
  const int samples = config.data.batch_size, replica_samples = samples / replicas;
  const int microbatches = source.microbatches(stages, replica_samples);
  const schedule::Schedule made = source.make(microbatches);
  ResolvedStep step{.samples = samples,
                    .replica_samples = replica_samples,
                    .microbatches = microbatches,
                    .tokens = static_cast<long long>(samples) * config.data.sequence_length,
                    .simulation = schedule::simulate(made),
                    .weighed = {}};
  if (!work.empty() && made.ranks() > 1) step.weighed = schedule::simulate(made, costs_by_work(work, made.ranks()));
  return step;
}

}  // namespace

std::vector<int> ranks_of_stages(const PipelineStageManager& manager) {
  std::vector<int> ranks;
  for (int stage = 0; stage < manager.num_stages(); ++stage) ranks.push_back(manager.rank_of(stage));
  return ranks;
}

ResolvedConfig resolve_config(Config config) {
  config.require_model();
  const auto& parallel = config.parallel;
  Mesh mesh = Mesh::hybrid(config.ranks(), parallel.pipeline, parallel.data, parallel.tensor, parallel.order,
                           parallel.context, parallel.expert);
  const ScheduleSource source(config.schedule, parallel.pipeline);
  PipelineStageManager manager(0, source.stages_of_rank());
  const int stages = manager.num_stages();
  std::vector<LayerRange> layers;
  int tower_layers = 0;
  std::vector<double> work;
  const nlohmann::json keys = models::keys_of_model(config.model);
  if (const int all = models::layers_of(keys, config.model.policy); all > 0) {
    LayerWork by_layer = weighed_work(config.schedule, models::layer_work_in(keys, all, config.model.policy));
    const bool is_known = by_layer.last > 0;
    if (parallel.vocabulary == "pipeline" && parallel.pipeline > 1) by_layer.first = by_layer.last = 0;
    const auto counts = layers_per_stage(config.schedule, by_layer, ranks_of_stages(manager));
    layers = layer_ranges(counts, all, stages);
    if (const auto spec = models::described_decoder(keys, config.model.policy))
      tower_layers = models::tower_layers(*spec);
    if (is_known) work = work_of_stages(by_layer, counts);
  }
  std::optional<ResolvedStep> step;
  if (!config.data.format.empty()) step = resolve_step(config, source, stages, mesh.axis_size(axis::kData), work);
  models::require_ranks(keys, config.model.policy, parallel);
  auto context = resolve_context(config, keys);
  auto experts = resolve_experts(config, keys, step ? step->microbatch_samples() : 0);
  auto recompute = chosen_recompute(config, mesh.axis_size(axis::kData));
  return {.config = std::move(config),
          .mesh = std::move(mesh),
          .stages = std::move(manager),
          .layers = std::move(layers),
          .tower_layers = tower_layers,
          .work = std::move(work),
          .step = std::move(step),
          .context = std::move(context),
          .experts = std::move(experts),
          .recompute = std::move(recompute)};
}

}  // namespace gantry::planner
