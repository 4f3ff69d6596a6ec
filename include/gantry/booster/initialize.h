// One call that boosts an ordinary model for a loop of one's own: for inference and training by the model's own
// forward, without a pipeline.
//
//   auto [booster, boosted] = gantry::initialize(*model, "gantry.yaml", {.optimizer = optimizer});
//   model->forward(...).backward();
//   booster.sync_gradients(boosted);
//   boosted.optimizer->step();
//   boosted.optimizer->zero_grad();
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gantry/booster/booster.h"
#include "gantry/core/config.h"

namespace gantry {

// What initialize() makes: a Booster, whose process groups the model communicates over and which must outlive it, and
// what it has boosted. All that takes these works: checkpoints (booster.state), audits, generation, loaders
// (booster.distribute), save_parallelized, load_weights, and execute_pipeline.
struct Initialized {
  Booster booster;
  Boosted boosted;
};

struct InitializeOptions {
  // Boosted where it is given; it has not stepped yet. Clipping, ZeRO 1, low precision and checkpoints of its state are
  // then as of booster.boost, and steps go by boosted.optimizer, after booster.sync_gradients. Without it the program
  // steps an optimizer of its own, built before or after; where there are replicas (dp), after booster.sync_gradients.
  std::shared_ptr<torch::optim::Optimizer> optimizer = nullptr;
  // For a model without a policy: a plan as parallelize_module takes it. execute_pipeline and generate are then a
  // UsageError: they need a policy.
  std::optional<ShardPlan> plan = std::nullopt;
};

// Splits `model` over tp in place, by the registered policy for its class or by the plan. Its forward then takes whole
// inputs and gives whole outputs on every rank, and backward() leaves complete gradients of this rank's parts of the
// parameters. Initial weights come from rank 0, or from the seed under DeferredInit.
//
// `config` is Gantry's, of which keys about parallelism, precision, the optimizer's steps and train.seed matter. Called
// within gantry::launch, whose mesh it must agree with. Collective over the world. ConfigError for a model without a
// policy, sizes that do not fit, a pipeline, ZeRO 2, or a model that was split before; UsageError outside a launch.
Initialized initialize(torch::nn::Module& model, const Config& config, const InitializeOptions& options = {});

// `path`: a YAML or JSON file with Gantry's keys, which need not name a model, or with OSLO's
// {"model_parallelism": {"tensor_parallel_size": N, "pipeline_parallel_size": 1}}. ConfigError for unknown keys too.
Initialized initialize(torch::nn::Module& model, const std::string& path, const InitializeOptions& options = {});

template <class Holder, class Configuration>
requires requires(const Holder& holder) { holder.ptr(); }
Initialized initialize(const Holder& model, const Configuration& config, const InitializeOptions& options = {}) {
  return initialize(*model.ptr(), config, options);
}

}  // namespace gantry
