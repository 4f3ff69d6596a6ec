#include "gantry/planner/configured_step.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/planner/config.h"
#include "gantry/planner/recompute.h"
#include "gantry/planner/workload.h"
#include "gantry/schedule/configured_schedule.h"
#include "gantry/schedule/stages/layers_per_stage.h"

namespace gantry::planner {
namespace {

int microbatches_of(const Config& config, const ScheduleSource& source, int stages, std::optional<int> given) {
  if (given) return *given;
  if (config.data.format.empty() && !config.schedule.microbatches)
    throw ConfigError({"schedule.microbatches",
                       "the number of microbatches is unknown, because the configuration has no data section",
                       "schedule.microbatches, or a data section",
                       "set schedule.microbatches, or use -m of gantry schedule"});
  const int samples = config.data.batch_size / std::max(1, config.parallel.data);
  return config.data.format.empty() ? *config.schedule.microbatches : source.microbatches(stages, samples);
}

Recompute how_of(const std::string& name) {
  using enum Recompute;
  for (const auto how : {kSelective, kParts, kFull})
    if (name_of(how) == name) return how;
  return kNone;
}

// Number of recomputed layers of each stage.
std::vector<int> recomputed(const ScheduleConfig& config, const std::vector<int>& layers) {
  std::vector<int> counts = config.recompute == "none" ? std::vector<int>(layers.size(), 0) : layers;
  const auto& stated = config.recompute_layers;
  for (std::size_t stage = 0; stage < counts.size() && !stated.empty(); ++stage)
    counts[stage] = std::min(counts[stage], stated.size() == 1 ? stated.front() : stated.at(stage));
  return counts;
}

// Scales the times so that the forward of a microbatch takes 1 on the average rank.
schedule::Costs scaled(schedule::Costs costs, int ranks) {
  double forward = 0;
  for (const auto& stage : costs.stages) forward += stage.forward;
  for (auto& stage : costs.stages) {
    for (double* time : {&stage.forward, &stage.input_gradient, &stage.weight_gradient}) *time *= ranks / forward;
    stage.activation = stage.weight_input = 1;
  }
  return costs;
}

void add_costs(ConfiguredStep& step, Config config, const models::DecoderSpec& spec) {
  const PipelineStageManager manager(0, step.schedule.stages_of_rank);
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < manager.num_stages(); ++stage) rank_of_stage.push_back(manager.rank_of(stage));
  const auto layers = layers_per_stage(config.schedule, models::layer_work_of(spec), rank_of_stage);
  step.layers = layer_ranges(layers, pipeline_layers(spec), manager.num_stages());
  step.recompute = chosen_recompute(config, std::max(1, config.parallel.data));
  if (step.recompute) apply(*step.recompute, config.schedule);
  const Workload workload = stated_workload(config);
  const RecomputeCosts costs(workload, stated_layout(config), step.schedule, layers);
  step.costs = scaled(costs.costs(how_of(config.schedule.recompute), recomputed(config.schedule, layers)),
                      step.schedule.ranks());
}

}  // namespace

ConfiguredStep configured_step(const Config& config, std::optional<int> microbatches) {
  if (config.parallel.vocabulary != "stages" && config.parallel.pipeline > 1)
    throw ConfigError({"parallel.vocabulary",
                       "gantry schedule does not support the value " + config.parallel.vocabulary, "stages",
                       "use gantry config, which shows the effect"});
  const ScheduleSource source(config.schedule, config.parallel.pipeline);
  const int stages = PipelineStageManager(0, source.stages_of_rank()).num_stages();
  ConfiguredStep step{.schedule = source.make(microbatches_of(config, source, stages, microbatches)),
                      .costs = {},
                      .gather = config.parallel.zero == 3 ? config.parallel.gather : "",
                      .offload = config.train.offload,
                      .recompute = {},
                      .layers = {}};
  const auto keys = models::keys_of_model(config.model);
  const auto spec = models::described_decoder(keys, config.model.policy);
  if (spec && !config.data.format.empty())
    add_costs(step, config, *spec);
  else if (config.schedule.recompute == "auto")
    chosen_recompute(config, 1);  // throws ConfigError with the reason
  return step;
}

}  // namespace gantry::planner
