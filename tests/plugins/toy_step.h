// Steps of a toy model in any layout. The results must not depend on the layout.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/functional/loss.h>

#include "gantry/nn/dropout.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/deferred_init.h"
#include "tiny_rig.h"

namespace gantry::testing {

struct ToySteps {
  std::vector<double> losses;
  std::vector<std::map<std::string, double>> added;  // added losses by name, per step
  TensorDict gradients;                              // full gradients of the last step
};

struct ToyCase {
  std::function<std::shared_ptr<torch::nn::Module>()> build;  // under DeferredInit, then in float64
  TensorDict batch;                                           // the global batch
  std::int64_t step_tokens = 0;
  int calls = 1;  // calls per step, each with a part of the batch
  std::int64_t step_samples = 0;
};

inline std::shared_ptr<torch::nn::Module> build_toy(const ToyCase& toy) {
  const DeferredInit deferred;
  auto model = toy.build();
  set_dtype(*model, torch::kFloat64);
  return model;
}

// `layout`: YAML keys such as "parallel: {tensor: 2}\nschedule: {microbatches: 2}".
inline Config toy_config(const std::string& policy, const std::string& layout) {
  return Config::parse("model: {policy: " + policy + "}\nprecision: float64\n" + layout +
                       "\ncomm: {timeout_seconds: 30, threads_per_rank: 1}\n");
}

// Trains for two SGD steps.
inline ToySteps run_toy(const ToyCase& toy, const Config& config) {
  return on_layout<ToySteps>(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto model = build_toy(toy);
    auto optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), 0.05);
    auto boosted = booster.boost(model, optimizer, cross_entropy());
    const auto& module = boosted.model->stage_module();
    const auto& mesh = plugin->mesh();
    ToySteps steps;
    for (int step = 0; step < 2; ++step) {
      const Batch full = make_batch(toy.batch);
      double loss = 0;
      std::map<std::string, double> added;
      const auto calls = split_evenly(full.samples, toy.calls);
      for (int call = 0; call < toy.calls; ++call) {
        std::optional<Booster::NoSync> guard;
        if (call + 1 < toy.calls) guard.emplace(plugin->no_sync_guards(nullptr));
        Batch part = slice(full, calls[call].first, calls[call].second);
        part.first_sample = 0;
        const StepResult done = booster.execute_pipeline(
            replica_part(part, mesh.size("dp"), mesh.coordinate("dp")), boosted,
            {.broadcast_loss = true, .step_tokens = toy.step_tokens, .step_samples = toy.step_samples});
        const auto tokens = static_cast<double>(done.tokens);
        loss += *done.loss * tokens;
        for (const auto& [name, mean] : done.added_losses) added[name] += mean * tokens;
      }
      steps.losses.push_back(loss);
      steps.added.push_back(added);
      if (step == 1) {
        boosted.optimizer->gradients().complete();
        steps.gradients = gather_tensors(module, plugin->stages(), mesh,
                                         [&](std::size_t i) { return boosted.optimizer->gradients().gradient(i); });
      }
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
    }
    return steps;
  });
}

// The same steps of the full model with plain LibTorch. `counted`: number of labels that count.
template <class Model>
ToySteps toy_by_autograd(const ToyCase& toy, std::int64_t counted) {
  const auto model = std::dynamic_pointer_cast<Model>(build_toy(toy));
  materialize(*model, 1);
  set_global_names(*model);
  ToySteps steps;
  for (int step = 0; step < 2; ++step) {
    TensorDict losses;
    const ForwardScope scope({.random = RandomContext{.seed = 1, .step = static_cast<std::uint64_t>(step)},
                              .losses = &losses,
                              .step_share = static_cast<double>(counted)});
    const torch::Tensor logits = model->forward(toy.batch).at("logits").flatten(0, 1);
    torch::Tensor sum = torch::nn::functional::cross_entropy(
        logits, toy.batch.at("labels").flatten(),
        torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-100).reduction(torch::kSum));
    auto& added = steps.added.emplace_back();
    for (const auto& [name, loss] : losses) {
      sum = sum + loss;
      added[name] = loss.template item<double>();
    }
    (sum / counted).backward();
    steps.losses.push_back(sum.item<double>());
    const torch::NoGradGuard no_grad;
    for (const auto& item : model->named_parameters()) {
      torch::Tensor parameter = item.value();
      if (!parameter.grad().defined()) continue;  // the second name of a tied parameter
      if (step == 1) steps.gradients.set(item.key(), parameter.grad().clone());
      parameter.sub_(0.05 * parameter.grad());
      parameter.mutable_grad() = torch::Tensor();
    }
  }
  return steps;
}

inline void expect_steps(const ToySteps& expected, const ToySteps& actual) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (std::size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], 1e-10 * std::abs(expected.losses[step]));
    ASSERT_EQ(actual.added[step].size(), expected.added[step].size());
    for (const auto& [name, sum] : expected.added[step])
      EXPECT_NEAR(actual.added[step].at(name), sum, 1e-10 * std::max(1.0, std::abs(sum))) << name;
  }
  expect_close(expected.gradients, actual.gradients);
}

}  // namespace gantry::testing
