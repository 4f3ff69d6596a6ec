// Parallelizes an ordinary model for inference or for a custom training loop with the model's own forward, without a
// pipeline:
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

// The result of initialize(). `booster` owns the process groups of the model and must outlive it. `boosted` works with
// checkpoints (booster.state), audits, generation, loaders (booster.distribute), save_parallelized(), load_weights()
// and execute_pipeline().
struct Initialized {
  Booster booster;
  Boosted boosted;
};

struct InitializeOptions {
  // The optimizer to boost; it must not have taken a step. Clipping, ZeRO 1, low precision and checkpoints of its state
  // work as with Booster::boost(). In each step, call booster.sync_gradients() and then boosted.optimizer->step().
  // Null: the program uses an optimizer of its own, created before or after this call. With replicas (dp), it calls
  // booster.sync_gradients() before its optimizer's step().
  std::shared_ptr<torch::optim::Optimizer> optimizer = nullptr;
  // For a model without a policy: a plan as in parallelize_module(). Then execute_pipeline() and generate() throw
  // UsageError, because they need a policy.
  std::optional<ShardPlan> plan = std::nullopt;
};

// Shards `model` over tp in place, by the policy that is registered for its class, or by the plan. Its forward then
// takes full inputs and returns full outputs on every rank, and backward() leaves complete gradients of this rank's
// parts of the parameters. Initial weights come from rank 0, or from the seed under DeferredInit.
//
// `config`: the keys for parallelism, precision, optimizer steps and train.seed are used. Call it within
// gantry::launch() with the same mesh sizes. Collective over the world. Throws ConfigError for a model without a
// policy, sizes that do not fit, a pipeline, context or expert parallelism, ZeRO 2 or 3, or a model that is already
// sharded. Throws UsageError outside of a launch.
Initialized initialize(torch::nn::Module& model, const Config& config, const InitializeOptions& options = {});

// `path`: a YAML or JSON file with Gantry's keys, where `model` is optional, or with OSLO's {"model_parallelism":
// {"tensor_parallel_size": N, "pipeline_parallel_size": 1}}. Unknown keys are a ConfigError too.
Initialized initialize(torch::nn::Module& model, const std::string& path, const InitializeOptions& options = {});

template <class Holder, class Configuration>
requires requires(const Holder& holder) { holder.ptr(); }
Initialized initialize(const Holder& model, const Configuration& config, const InitializeOptions& options = {}) {
  return initialize(*model.ptr(), config, options);
}

}  // namespace gantry
