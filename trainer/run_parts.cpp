#include "gantry/trainer/run_parts.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "gantry/booster/lora.h"
#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/disk_work.h"
#include "gantry/core/error.h"
#include "gantry/tensors/deferred_init.h"

namespace gantry {
namespace {

// Converts train.epochs to train.steps by the number of samples. Rank 0 opens the data on behalf of all
// ranks.
void resolve_epochs(Config& config, DataLoader& loader, const World& world, const ProcessGroupMesh& mesh) {
  config.mark_used("train.epochs");
  if (config.train.epochs == 0) return;
  if (loader.reads_streams())
    throw ConfigError({"train.epochs", "the length of the program's streams is not known", "train.steps",
                       "set train.steps, an upper limit: the run ends with the streams"});
  DiskProgress progress;
  work_on_disk(mesh.world_group(), disk_limits(config.comm.timeout_seconds, "opening the data"), progress, [&] {
    if (world.is_main()) loader.open([&](std::uint64_t bytes) { progress.add(bytes); });
  });
  const double samples =
      all_reduce_number(mesh.world_group(), world.is_main() ? static_cast<double>(loader.samples()) : 0);
  const double steps = std::ceil(config.train.epochs * samples / static_cast<double>(loader.global_batch()));
  config.train.steps = static_cast<int>(std::clamp(steps, 1.0, 1e9));
  if (world.is_main())
    fmt::print("{} epochs of {} samples: {} steps of {}\n", config.train.epochs, samples, config.train.steps,
               loader.global_batch());
  config.train.epochs = 0;
}

// Gives the program's model the configured precision and, if it has no optimizer yet, adapters and frozen
// parameters, as build_model() does.
void make_ready(torch::nn::Module& model, const TrainerParts& given, Config& config) {
  if (config.model.policy.empty()) config.model.policy = policy_name_for(model);
  set_dtype(model, dtype_of(config.precision));
  config.mark_used("model.config");  // its keys are for the code that built the model
  if (given.optimizer) return;       // the optimizer already has its parameters
  add_lora(model, config);
  freeze_parameters(model, config);
}

// The learning rates of the program's own optimizer are the peaks of the schedule, unless the program
// provides a schedule.
LrSchedule rates_of(const TrainerParts& given, const Config& config) {
  if (given.lr_schedule) return *given.lr_schedule;
  if (!given.optimizer) return build_lr_schedule(config);
  config.mark_used("lr_schedule");
  return LrSchedule(config.lr_schedule, std::nullopt, config.train.steps);
}

void require_a_rate(const LrSchedule& rates, std::size_t groups, std::int64_t steps) {
  for (std::int64_t step = 1; step <= steps; ++step)
    for (std::size_t group = 0; group < groups; ++group)
      if (rates.at(step, group) != 0) return;
  throw ConfigError({"lr_schedule", fmt::format("the learning rate of all {} steps is 0", steps),
                     "a step with a learning rate above 0", "lower lr_schedule.warmup_steps, or raise train.steps"});
}

}  // namespace

RunParts assemble_parts(const TrainerParts& given, Config& config, const World& world, const ProcessGroupMesh& mesh) {
  if (given.optimizer && !given.model)
    throw UsageError(
        {"Trainer", "its parts have an optimizer without its model", "both, or neither", "pass the model too"});
  if (!given.loader) config.require_training();
  if (given.evaluation_loader && given.evaluation_loader->reads_streams())
    throw UsageError({"Trainer", "evaluation_loader reads streams, but each evaluation needs the same samples",
                      "a loader of a data set", "store the held-out samples, for example in a TensorDataset"});
  if (given.evaluation_loader) config.evaluation.every = given.evaluate_every;
  if (given.loader && given.loader->reads_streams() && config.elastic.is_on())
    throw ConfigError({"elastic", "elastic jobs do not support a loader of streams", "a loader of a data set",
                       "remove elastic, or store the samples"});
  if (given.model) make_ready(*given.model, given, config);
  RunParts parts;
  parts.model = given.model ? given.model : build_model(config);
  parts.optimizer = given.optimizer ? given.optimizer : build_optimizer(config, *parts.model);
  parts.loader = given.loader ? given.loader : build_loader(config);
  resolve_epochs(config, *parts.loader, world, mesh);
  parts.held_out = given.evaluation_loader ? given.evaluation_loader : build_evaluation_loader(config);
  if (!given.criterion) parts.objective = objective_parts(config.train.objective);
  parts.criterion = given.criterion ? *given.criterion : build_criterion(config, parts.objective);
  parts.predictions = given.criterion ? Predictions::kNone : predictions_of(config);
  parts.rates = rates_of(given, config);
  if (!config.evaluation.only) require_a_rate(*parts.rates, parts.optimizer->param_groups().size(), config.train.steps);
  return parts;
}

}  // namespace gantry
