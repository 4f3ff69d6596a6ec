// The callbacks of a Trainer: when and where each one is called, gradients that one changes, and exceptions.
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <mutex>

#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/launch/quiet_launch.h"
#include "gantry/trainer/train.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kHookSteps = 4;

// A tiny GPT-2 on bytes, evaluated every two steps and saved every two.
Config hooked_config(const ScratchFolder& scratch, const std::string& layout, const std::string& precision,
                     const std::string& keys = "") {
  const std::string text = some_letters(300);
  const std::string path = scratch.write("text.txt", text);
  return Config::parse(fmt::format(
      "model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: 16}}}}\n"
      "parallel: {}\nprecision: {}\nschedule: {{microbatches: 2}}\n"
      "data: {{format: text, path: \"{}\", sequence_length: 8, batch_size: 8}}\n"
      "optimizer: {{lr: 1.0e-2, clip_grad_norm: 1.0}}\ntrain: {{steps: {}}}\n{}",
      layout, precision, path, kHookSteps, keys));
}

std::string with_saves(const ScratchFolder& scratch) {
  return fmt::format("evaluation: {{path: \"{}\", every: 2, batches: 1}}\ncheckpoint: {{path: \"{}\", every: 2}}\n",
                     scratch / "text.txt", scratch / "checkpoints");
}

// Calls `call` from every callback.
using Call = std::function<void(const std::string& place)>;
TrainerCallbacks all_hooks(const Call& call) {
  return {.on_start = [=](std::int64_t done) { call(fmt::format("on_start {}", done)); },
          .on_batch = [=](std::int64_t step,
                          const Batch& batch) { call(fmt::format("on_batch {} of {}", step, batch.samples)); },
          .before_backward =
              [=](const MicrobatchBackward& one) {
                call(fmt::format("before_backward {} stage {} microbatch {}", one.step, one.stage, one.microbatch));
              },
          .after_backward = [=](const StepGradients& all) { call(fmt::format("after_backward {}", all.step)); },
          .before_step = [=](std::int64_t step) { call(fmt::format("before_step {}", step)); },
          .on_step = [=](const StepMetrics& step) { call(fmt::format("on_step {}", step.step)); },
          .on_evaluation = [=](const EvaluationMetrics& all) { call(fmt::format("on_evaluation {}", all.step)); },
          .on_save = [=](std::int64_t step) { call(fmt::format("on_save {}", step)); },
          .on_end = [=](const RunEnd& end) { call(fmt::format("on_end {}", end.last_step)); }};
}

TEST(TrainerHooks, AreCalledOnEveryRankInTheOrderOfTheStep) {
  const ScratchFolder scratch;
  for (const char* schedule : {"1f1b", "zb_h1"}) {
    Config config = hooked_config(scratch, "{data: 2, pipeline: 2}", "float64", with_saves(scratch));
    config.schedule.name = schedule;
    std::filesystem::remove_all(scratch / "checkpoints");
    std::mutex mutex;
    std::map<int, std::vector<std::string>> calls;
    std::map<int, int> stage_of_rank;
    ASSERT_EQ(train(config,
                    [&](Trainer& trainer) {
                      {
                        const std::lock_guard lock(mutex);
                        stage_of_rank[trainer.world().rank()] = trainer.booster().plugin().stages().pipeline_rank();
                      }
                      trainer.add(all_hooks([&, rank = trainer.world().rank()](const std::string& place) {
                        const std::lock_guard lock(mutex);
                        calls[rank].push_back(place);
                      }));
                      trainer.run();
                    }),
              0);
    for (int rank = 0; rank < 4; ++rank) {
      std::vector<std::string> expected{"on_start 0"};
      for (int step = 1; step <= kHookSteps; ++step) {
        expected.push_back(fmt::format("on_batch {} of 4", step));
        for (int microbatch = 0; microbatch < 2; ++microbatch)
          expected.push_back(
              fmt::format("before_backward {} stage {} microbatch {}", step, stage_of_rank.at(rank), microbatch));
        for (const char* name : {"after_backward", "before_step", "on_step"})
          expected.push_back(fmt::format("{} {}", name, step));
        if (step % 2 != 0) continue;
        for (const char* name : {"on_save", "on_evaluation"}) expected.push_back(fmt::format("{} {}", name, step));
      }
      expected.push_back("on_end 4");
      EXPECT_EQ(calls[rank], expected) << schedule << " rank " << rank;
    }
  }
}

// Losses and norms of a run whose gradients are changed element by element.
std::vector<double> with_changed_gradients(const std::string& layout) {
  const ScratchFolder scratch;
  std::vector<double> numbers;
  EXPECT_EQ(train(hooked_config(scratch, layout, "float64"),
                  [&](Trainer& trainer) {
                    trainer.add({.after_backward = [](const StepGradients& all) {
                      for (const auto& [name, gradient] : all.gradients)
                        gradient.copy_(gradient.sign() * gradient.abs().sqrt() / (1 + all.norm)).mul_(name.size());
                    }});
                    if (trainer.world().is_main())
                      trainer.add({.on_step = [&](const StepMetrics& step) {
                        numbers.push_back(step.loss);
                        numbers.push_back(step.grad_norm);
                      }});
                    trainer.run();
                  }),
            0);
  return numbers;
}

TEST(TrainerHooks, ChangedGradientsAreSteppedAsOnOneRank) {
  const auto one = with_changed_gradients("{data: 1}");
  ASSERT_EQ(one.size(), 2u * kHookSteps);
  for (const char* layout : {"{data: 2, pipeline: 2}", "{data: 2, pipeline: 2, zero: 1}", "{data: 2, zero: 2}",
                             "{data: 2, zero: 3}", "{tensor: 2, data: 2, zero: 1}"}) {
    const auto many = with_changed_gradients(layout);
    ASSERT_EQ(many.size(), one.size()) << layout;
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(many[i], one[i], 1e-9) << layout << " " << i;
  }
}

TEST(TrainerHooks, GradientsDoNotIncludeTheLossScale) {
  const ScratchFolder scratch;
  std::vector<double> read, stated;
  ASSERT_EQ(train(hooked_config(scratch, "{data: 1}", "float16"),
                  [&](Trainer& trainer) {
                    trainer.add({.after_backward = [&](const StepGradients& all) {
                      double sum = 0;
                      for (const auto& [name, gradient] : all.gradients)
                        sum += gradient.to(torch::kFloat64).square().sum().item<double>();
                      if (!std::isfinite(all.norm)) return;
                      read.push_back(std::sqrt(sum));
                      stated.push_back(all.norm);
                    }});
                    trainer.run();
                  }),
            0);
  ASSERT_FALSE(read.empty());
  for (std::size_t i = 0; i < read.size(); ++i) EXPECT_NEAR(read[i], stated[i], 1e-3 * stated[i]);
}

TEST(TrainerHooks, AnExceptionInOneOfThemEndsAllRanksWithItsName) {
  for (const std::string name : {"on_start", "on_batch", "before_backward", "after_backward", "before_step", "on_step",
                                 "on_evaluation", "on_save", "on_end"}) {
    const ScratchFolder scratch;
    const auto failed = launch_quietly(hooked_config(scratch, "{data: 2, pipeline: 2}", "float32", with_saves(scratch)),
                                       [&](World& world) {
                                         Trainer trainer(world, world.config());
                                         trainer.add(all_hooks([&](const std::string& place) {
                                           if (world.rank() == 1 && place.starts_with(name + " "))
                                             throw std::runtime_error("no more");
                                         }));
                                         trainer.run();
                                         // The others wait for a rank that does not come.
                                         if (name == "on_end") trainer.booster().mesh().world_group().barrier().wait();
                                       });
    ASSERT_TRUE(failed) << name;
    EXPECT_EQ(failed->exit_code, UserError::kExitCode) << failed->line;
    EXPECT_THAT(failed->line, HasSubstr(fmt::format("callback {}: it threw \"no more\"", name)));
  }
}

}  // namespace
}  // namespace gantry::testing
