// The training run of a custom program: its parts and its callbacks, compared with a plain loop.
#include "gantry/trainer/trainer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/trainer/train.h"
#include "program.h"
#include "program_run.h"
#include "small_stack.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Trainer, GivesTheLossesOfAPlainLoop) {
  const ScratchFolder scratch;
  const Config config = resolve_model(text_config(scratch));
  std::vector<double> losses, expected;
  EXPECT_EQ(train(config,
                  [&](Trainer& trainer) {
                    if (trainer.world().is_main())
                      trainer.add({.on_step = [&](const StepMetrics& step) { losses.push_back(step.loss); }});
                    trainer.run();
                  }),
            0);
  EXPECT_EQ(start_ranks()(config,
                          [&](World& world) {
                            Booster booster(std::make_unique<HybridParallelPlugin>(world, config));
                            auto model = build_model(config);
                            auto boosted = booster.boost(model, build_optimizer(config, *model),
                                                         build_criterion(config), build_loader(config));
                            const LrSchedule rates = build_lr_schedule(config);
                            for (int step = 1; step <= 6; ++step) {
                              const auto result =
                                  booster.execute_pipeline(boosted.loader->next(), boosted, {.broadcast_loss = true});
                              boosted.optimizer->set_lr(rates.at(step));
                              boosted.optimizer->step();
                              boosted.optimizer->zero_grad();
                              if (world.is_main()) expected.push_back(*result.loss);
                            }
                          }),
            0);
  EXPECT_EQ(losses, expected);
}

TEST(Trainer, TellsItsCallbacksOnEveryRankAndItsSinksOnTheFirst) {
  struct Sink final : MetricSink {
    explicit Sink(std::vector<std::string>& lines) : lines(lines) {}
    void write(const StepMetrics& step) override { lines.push_back(fmt::format("step {}", step.step)); }
    void write(const EvaluationMetrics& all) override { lines.push_back(fmt::format("evaluation {}", all.step)); }
    std::vector<std::string>& lines;
  };
  const ScratchFolder scratch;
  const Config config = text_config(
      scratch,
      fmt::format("evaluation: {{path: \"{}\", every: 4, batches: 2}}\ncheckpoint: {{path: \"{}\", every: 3}}\n",
                  scratch / "text.txt", scratch / "checkpoints"));
  Notified notified;
  std::vector<std::string> lines;
  EXPECT_EQ(train(config,
                  [&](Trainer& trainer) {
                    tell_all(trainer, notified);
                    trainer.add(std::make_unique<Sink>(lines));
                    trainer.run();
                  }),
            0);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_THAT(notified.of_rank(rank), ElementsAre("step 1", "step 2", "step 3", "save 3", "step 4", "evaluation 4",
                                                    "step 5", "step 6", "save 6", "evaluation 6", "end 6 0"));
  EXPECT_THAT(lines,
              ElementsAre("step 1", "step 2", "step 3", "step 4", "evaluation 4", "step 5", "step 6", "evaluation 6"));
}

// The trace has every rank's operators, messages and actions, on any device.
TEST(Trainer, LeavesTheProfileOfChosenStepsOfEachRank) {
  const ScratchFolder scratch;
  const Config config = text_config(
      scratch, fmt::format("output: \"{}\"\nprofile: {{wait: 1, warmup: 1, active: 2}}\n", scratch / "run"));
  EXPECT_EQ(train(config, [](Trainer& trainer) { trainer.run(); }), 0);
  const auto has = [](const std::string& trace, const char* seen) { return trace.find(seen) != std::string::npos; };
  const std::string together = read_file(scratch / "run/profile-0.trace.json");
  for (const char* seen : {"aten::addmm", "gantry::wait", "gantry::all_reduce", "\"0F0\"", "\"1B0\"", "0SEND_F0"})
    EXPECT_TRUE(has(together, seen)) << seen;
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(has(read_file(scratch / fmt::format("run/tensorboard/rank_{}/cycle_0.pt.trace.json", rank)), "aten::"))
        << rank;
}

// Samples of floats with a class label.
class Signs final : public Dataset {
 public:
  std::int64_t size() const override { return 32; }
  std::int64_t sequence_length() const override { return 0; }
  std::vector<SampleEntry> entries() const override {
    return {{"x", 0, 12, NumberType::kFloat32}, {"labels", 0, 0, NumberType::kInt16}};
  }
  void read_numbers(std::int64_t index, const NumberRow& row) const override {
    if (row.type() == NumberType::kInt16) {
      *row.as<std::int16_t>() = static_cast<std::int16_t>(index % 6);
      return;
    }
    for (int i = 0; i < 12; ++i) row.as<float>()[i] = std::sin(static_cast<float>(index * 12 + i));
  }
};

TEST(Trainer, TrainsAModelCriterionOptimizerAndLoaderOfTheProgramsOwn) {
  static const bool added = (policies().add<StackPolicy>("trainers_stack"), true);
  EXPECT_TRUE(added);
  const ScratchFolder scratch;
  const auto run = [&](const std::string& layout) {
    const Config config = Config::parse(fmt::format(
        "model: {{}}\nparallel: {}\nprecision: float64\nschedule: {{microbatches: 2}}\ntrain: {{steps: 5}}\n"
        "checkpoint: {{path: \"{}\"}}\n",
        layout, scratch / std::to_string(std::hash<std::string>()(layout))));
    std::vector<double> losses;
    EXPECT_EQ(train(config,
                    [&](Trainer& trainer) {
                      const auto model = [] {
                        const DeferredInit deferred;
                        return std::make_shared<StackImpl>();
                      }();
                      trainer.use({.model = model,
                                   .optimizer = std::make_shared<torch::optim::Adam>(model->parameters()),
                                   .criterion = cross_entropy(),
                                   .loader = std::make_shared<DataLoader>(std::make_shared<Signs>(),
                                                                          DataLoaderOptions{.global_batch = 8}),
                                   .evaluation_loader = std::make_shared<DataLoader>(
                                       std::make_shared<Signs>(),
                                       DataLoaderOptions{.global_batch = 7, .shuffle = false, .keep_last = true}),
                                   .evaluate_every = 2});
                      if (trainer.world().is_main())
                        trainer.add({.on_step = [&](const StepMetrics& step) { losses.push_back(step.loss); },
                                     .on_evaluation =
                                         [&](const EvaluationMetrics& all) {
                                           EXPECT_EQ(all.tokens, 32);
                                           losses.push_back(all.loss);
                                         }});
                      trainer.run();
                    }),
              0);
    return losses;
  };
  const auto full = run("{data: 1}");
  ASSERT_EQ(full.size(), 8u);
  for (const char* layout : {"{tensor: 2, pipeline: 2}", "{data: 2, zero: 1}"}) {
    const auto losses = run(layout);
    ASSERT_EQ(losses.size(), full.size());
    for (std::size_t i = 0; i < full.size(); ++i) EXPECT_NEAR(losses[i], full[i], 1e-10) << layout << i;
  }
}

// Trains the model of the test above with an optimizer of two groups, and returns their rates after each step.
std::vector<std::vector<double>> rates_of_groups(const std::string& keys, std::optional<LrSchedule> schedule = {}) {
  const ScratchFolder scratch;
  const Config config = Config::parse("model: {policy: trainers_stack}\ntrain: {steps: 4}\n" + keys);
  std::vector<std::vector<double>> rates;
  EXPECT_EQ(train(config,
                  [&](Trainer& trainer) {
                    const auto model = std::make_shared<StackImpl>();
                    std::vector<torch::optim::OptimizerParamGroup> groups{{{}}, {{}}};
                    groups[1].set_options(std::make_unique<torch::optim::AdamOptions>(0.5));
                    int place = 0;
                    for (const auto& parameter : model->parameters()) groups[place++ % 2].params().push_back(parameter);
                    trainer.use({.model = model,
                                 .optimizer = std::make_shared<torch::optim::Adam>(groups, 0.25),
                                 .criterion = cross_entropy(),
                                 .loader = std::make_shared<DataLoader>(std::make_shared<Signs>(),
                                                                        DataLoaderOptions{.global_batch = 8}),
                                 .lr_schedule = std::move(schedule)});
                    trainer.add({.on_step = [&](const StepMetrics& step) {
                      std::vector<double> now{step.lr};
                      for (auto& group : trainer.boosted().optimizer->inner().param_groups())
                        now.push_back(group.options().get_lr());
                      rates.push_back(now);
                    }});
                    trainer.run();
                  }),
            0);
  return rates;
}

TEST(Trainer, TheRatesOfAnOwnOptimizerAreThePeaksOfItsGroups) {
  using ::testing::Each;
  const auto kept = rates_of_groups("");
  ASSERT_EQ(kept.size(), 4u);
  EXPECT_THAT(kept, Each(ElementsAre(0.25, 0.25, 0.5)));
  EXPECT_THAT(rates_of_groups("lr_schedule: {name: linear}"),
              ElementsAre(ElementsAre(0.25, 0.25, 0.5), ElementsAre(0.1875, 0.1875, 0.375),
                          ElementsAre(0.125, 0.125, 0.25), ElementsAre(0.0625, 0.0625, 0.125)));
  const LrSchedule own([](std::int64_t step, std::size_t group) { return group == 0 ? 1.0 / step : 2.0 * step; });
  EXPECT_THAT(rates_of_groups("", own), ElementsAre(ElementsAre(1, 1, 2), ElementsAre(0.5, 0.5, 4),
                                                    ElementsAre(1.0 / 3, 1.0 / 3, 6), ElementsAre(0.25, 0.25, 8)));
}

TEST(Trainer, RefusesARunWhoseRatesAreAllZero) {
  const ScratchFolder scratch;
  Config config = text_config(scratch);
  config.train.steps = 1;
  const Failure failed = failure_of(config, [](World& world) { Trainer(world, world.config()).run(); });
  EXPECT_EQ(failed.exit_code, ConfigError::kExitCode);
  EXPECT_THAT(failed.line, HasSubstr("lr_schedule: the learning rate of all 1 steps is 0"));
}

TEST(Trainer, RefusesSetLrWithASchedule) {
  const ScratchFolder scratch;
  const Failure failed = failure_of(text_config(scratch), [](World& world) {
    Trainer trainer(world, world.config());
    trainer.add({.on_step = [&](const StepMetrics&) { trainer.boosted().optimizer->set_lr(0.1); }});
    trainer.run();
  });
  EXPECT_EQ(failed.exit_code, UsageError::kExitCode);
  EXPECT_THAT(failed.line, HasSubstr("the learning rate of each step is set by an lr_schedule"));
}

TEST(Trainer, RefusesPartsThatDoNotFitEachOtherAndKeysThatThePartsReplace) {
  const ScratchFolder scratch;
  const Config config = text_config(scratch);
  const auto with = [&](const std::function<TrainerParts()>& parts) {
    return failure_of(config, [&](World& world) {
      Trainer trainer(world, world.config());
      trainer.use(parts());
      trainer.run();
    });
  };
  const Failure alone = with([] {
    return TrainerParts{.optimizer = std::make_shared<torch::optim::Adam>(
                            std::vector<torch::Tensor>{torch::ones({1}).set_requires_grad(true)})};
  });
  EXPECT_EQ(alone.exit_code, UsageError::kExitCode);
  EXPECT_THAT(alone.line, HasSubstr("an optimizer without its model"));
  const Failure twice = with([] {
    return TrainerParts{.loader = std::make_shared<DataLoader>(std::make_shared<Signs>(), DataLoaderOptions{}),
                        .lr_schedule = LrSchedule({}, 1e-3, 6)};
  });
  EXPECT_EQ(twice.exit_code, ConfigError::kExitCode);
  EXPECT_THAT(twice.line, HasSubstr("data, lr_schedule: the configuration sets this, but the program does not use it; "
                                    "pass the Trainer no part of your own for it, use data with build_loader"));
  EXPECT_THAT(twice.line, Not(HasSubstr("run the steps with gantry::Trainer")));
}

TEST(Trainer, ThatWasNotRunIsAnError) {
  const ScratchFolder scratch;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(train(text_config(scratch), [](Trainer&) {}), UsageError::kExitCode);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("returned without a call of Trainer::run()"));
}

TEST(Trainer, SaysThatMicrobatchesWereLowered) {
  const ScratchFolder scratch;
  Config config = text_config(scratch);
  config.schedule.microbatches = 100;
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(train(config, [](Trainer& trainer) { trainer.run(); }), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("schedule.microbatches: 4 instead of 100, because a replica has 4 samples per step\n"));
}

// Gradient descent with momentum. It declares its state by one function.
class OwnMomentum final : public torch::optim::Optimizer, public StatefulOptimizer {
 public:
  explicit OwnMomentum(const std::vector<torch::Tensor>& parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(parameters)}, std::make_unique<torch::optim::SGDOptions>(0.05)) {}
  torch::Tensor step(LossClosure /*closure*/ = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : param_groups_.front().params()) {
      if (!parameter.grad().defined()) continue;
      torch::Tensor momentum = state_tensors(parameter).front().second;
      momentum.mul_(0.9).add_(parameter.grad());
      parameter.sub_(param_groups_.front().options().get_lr() * momentum);
    }
    return {};
  }
  NamedTensors state_tensors(const torch::Tensor& parameter) override {
    auto& momentum = momentum_[parameter.unsafeGetTensorImpl()];
    if (!momentum.defined()) momentum = torch::zeros_like(parameter).detach();
    return {{"momentum", momentum}};
  }

 private:
  std::map<void*, torch::Tensor> momentum_;
};

TEST(Trainer, ResumesAnOwnOptimizerThatStatesItsState) {
  const ScratchFolder scratch;
  const auto losses_of = [&](const std::string& folder, const std::string& sets) {
    Config config = Config::parse(fmt::format(
        "model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: 16}}}}\n"
        "parallel: {{tensor: 2, pipeline: 2}}\nprecision: float64\ntrain: {{steps: 6}}\n"
        "data: {{format: text, path: \"{}\", sequence_length: 8, batch_size: 4}}\ncheckpoint: {{path: \"{}\", every: "
        "3}}\n",
        scratch.write("text.txt", some_letters(300)), scratch / folder));
    if (!sets.empty()) config.checkpoint.resume = sets;
    std::vector<double> losses;
    EXPECT_EQ(train(resolve_model(config),
                    [&](Trainer& trainer) {
                      auto model = build_model(trainer.world().config());
                      trainer.use({.model = model, .optimizer = std::make_shared<OwnMomentum>(model->parameters())});
                      if (trainer.world().is_main())
                        trainer.add({.on_step = [&](const StepMetrics& step) { losses.push_back(step.loss); }});
                      trainer.run();
                    }),
              0);
    return losses;
  };
  const auto whole = losses_of("whole", "");
  ASSERT_EQ(whole.size(), 6U);
  const auto rest = losses_of("rest", scratch / "whole/step-000003");
  EXPECT_EQ(rest, std::vector<double>(whole.begin() + 3, whole.end()));
}

}  // namespace
}  // namespace gantry::testing
