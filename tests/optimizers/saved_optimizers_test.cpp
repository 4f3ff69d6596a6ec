// LibTorch's optimizers in every layout: boosted, saved and
// resumed. Optimizers that cannot be saved are rejected.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>

#include <torch/optim/adagrad.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>

#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/launch/quiet_launch.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/trainer/train.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using Parameters = std::vector<torch::Tensor>;
using MakeOptimizer = std::function<std::shared_ptr<torch::optim::Optimizer>(const Parameters&)>;

Config saved_config(const ScratchFolder& scratch, const std::string& layout, const std::string& keys) {
  const std::string text = some_letters(300);
  return Config::parse(fmt::format(
      "model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: 16}}}}\n"
      "parallel: {}\nprecision: float64\nschedule: {{microbatches: 2}}\n"
      "data: {{format: text, tokenizer: bytes, path: \"{}\", sequence_length: 8, batch_size: 4}}\ntrain: {{steps: "
      "6}}\n{}",
      layout, scratch.write("text.txt", text), keys));
}

TrainerParts parts_with(const MakeOptimizer& make, const Config& config) {
  const auto built = build_model(config);
  return {.model = built, .optimizer = make(built->parameters())};
}

// Losses by step.
std::vector<double> losses_with(const MakeOptimizer& make, const Config& config, int ends_at = 0) {
  std::vector<double> losses;
  EXPECT_EQ(train(config,
                  [&](Trainer& trainer) {
                    trainer.use(parts_with(make, trainer.config()));
                    trainer.add({.on_step = [&, main = trainer.world().is_main()](const StepMetrics& step) {
                      if (main) losses.push_back(step.loss);
                      if (step.step == ends_at) trainer.end();
                    }});
                    trainer.run();
                  }),
            0);
  return losses;
}

template <class Optimizer, class Options>
MakeOptimizer make_with(const Options& options) {
  return [options](const Parameters& all) { return std::make_shared<Optimizer>(all, options); };
}

TEST(SavedOptimizers, OfLibTorchGoOnInAnotherLayoutAsIfNothingHadHappened) {
  using namespace torch::optim;
  const std::pair<const char*, MakeOptimizer> all[] = {
      {"SGD", make_with<SGD>(SGDOptions(0.05).momentum(0.9))},
      {"Adam", make_with<Adam>(AdamOptions(1e-2).amsgrad(true))},
      {"AdamW", make_with<AdamW>(AdamWOptions(1e-2))},
      {"RMSprop", make_with<RMSprop>(RMSpropOptions(1e-3))},
      {"RMSprop, all", make_with<RMSprop>(RMSpropOptions(1e-3).momentum(0.9).centered(true))},
      {"Adagrad", make_with<Adagrad>(AdagradOptions(1e-2).lr_decay(0.1).initial_accumulator_value(0.01))}};
  for (const auto& [name, make] : all) {
    const ScratchFolder scratch;
    const auto full = losses_with(make, saved_config(scratch, "{data: 1}", ""));
    ASSERT_EQ(full.size(), 6u) << name;
    int folder = 0;
    for (const char* layout :
         {"{tensor: 2, pipeline: 2}", "{data: 2, zero: 1}", "{data: 2, zero: 2}", "{data: 2, zero: 3}"}) {
      const auto saves =
          fmt::format("checkpoint: {{path: \"{}\", resume: auto}}\n", scratch / std::to_string(++folder));
      auto losses = losses_with(make, saved_config(scratch, layout, saves), 3);
      const auto rest = losses_with(make, saved_config(scratch, "{pipeline: 2}", saves));
      losses.insert(losses.end(), rest.begin(), rest.end());
      ASSERT_EQ(losses.size(), full.size()) << name << layout;
      for (std::size_t i = 0; i < full.size(); ++i) EXPECT_NEAR(losses[i], full[i], 1e-9) << name << layout << i;
    }
  }
}

// An optimizer of a program with a private state.
class Closed : public torch::optim::Optimizer {
 public:
  explicit Closed(const Parameters& all)
      : Optimizer({torch::optim::OptimizerParamGroup(all)}, std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  torch::Tensor step(LossClosure /*closure*/ = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups())
      for (auto& parameter : group.params())
        if (parameter.grad().defined()) parameter.sub_(0.1 * parameter.grad());
    return {};
  }
};

// Its own state is not among the tensors of LibTorch's class.
class Averaging : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;
  torch::Tensor step(LossClosure closure = nullptr) override {
    steps_ += 1;
    return SGD::step(std::move(closure));
  }

 private:
  int steps_ = 0;
};

Failure refusal(const MakeOptimizer& make, const Config& config) {
  int steps = 0;
  const auto failed = launch_quietly(config, [&](World& world) {
    Trainer trainer(world, world.config());
    trainer.use(parts_with(make, trainer.config()));
    trainer.add({.on_step = [&](const StepMetrics&) { ++steps; }});
    trainer.run();
  });
  EXPECT_EQ(steps, failed ? 0 : 6);
  return failed.value_or(Failure{0, "nothing failed"});
}

TEST(SavedOptimizers, WhatCanNotBeSavedOrSteppedIsRefusedBeforeTheFirstStep) {
  const ScratchFolder scratch;
  const MakeOptimizer closed = [](const Parameters& all) { return std::make_shared<Closed>(all); };
  const auto saved =
      refusal(closed, saved_config(scratch, "{data: 1}", fmt::format("checkpoint: {{path: \"{}\"}}\n", scratch / "c")));
  EXPECT_EQ(saved.exit_code, UsageError::kExitCode);
  EXPECT_THAT(saved.line, HasSubstr("boost: the optimizer cannot be saved, because the state of its class"));
  EXPECT_THAT(saved.line, HasSubstr("Closed is unknown"));
  const auto derived = make_with<Averaging>(torch::optim::SGDOptions(0.1));
  const auto averaging = refusal(
      derived, saved_config(scratch, "{data: 1}", fmt::format("checkpoint: {{path: \"{}\"}}\n", scratch / "c")));
  EXPECT_EQ(averaging.exit_code, UsageError::kExitCode);
  EXPECT_THAT(averaging.line, HasSubstr("Averaging is unknown"));
  EXPECT_THAT(averaging.line, HasSubstr("derive its class from gantry::StatefulOptimizer and return its state in "
                                        "state_tensors()"));
  EXPECT_EQ(refusal(derived, saved_config(scratch, "{data: 1}", "")).line, "nothing failed");
  EXPECT_EQ(refusal(closed, saved_config(scratch, "{data: 1}", "")).line, "nothing failed");
  const auto lbfgs =
      refusal(make_with<torch::optim::LBFGS>(torch::optim::LBFGSOptions(1e-2)), saved_config(scratch, "{data: 1}", ""));
  EXPECT_EQ(lbfgs.exit_code, UsageError::kExitCode);
  EXPECT_THAT(lbfgs.line, HasSubstr("LBFGS is not supported, because its step computes the loss several times"));
}

}  // namespace
}  // namespace gantry::testing
