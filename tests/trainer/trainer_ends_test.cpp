// The ways in which a training run ends: by a callback, an evaluation, a full disk or a number that is not finite.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/trainer/run_checkpoints.h"
#include "gantry/trainer/train.h"
#include "gantry/trainer/trainer.h"
#include "program.h"
#include "program_run.h"
#include "small_stack.h"

namespace gantry::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A call of end() on one rank is enough. The resumed run continues as if the run had not been interrupted.
TEST(Trainer, EndsAfterTheStepThatACallbackSaysAndGoesOnLater) {
  const ScratchFolder scratch;
  const auto run = [&](const std::string& folder, int ends_at) {
    const Config config = text_config(
        scratch,
        fmt::format("evaluation: {{path: \"{}\", every: 4, batches: 2}}\ncheckpoint: {{path: \"{}\", resume: auto}}\n",
                    scratch / "text.txt", scratch / folder));
    Notified notified;
    EXPECT_EQ(train(config,
                    [&](Trainer& trainer) {
                      tell_all(trainer, notified);
                      trainer.add({.on_step = [&](const StepMetrics& step) {
                        notified.add(trainer.world(), fmt::format("{:.17g}", step.loss));
                        if (step.step == ends_at && trainer.world().rank() == 2) trainer.end();
                      }});
                      trainer.run();
                    }),
              0);
    return notified.of_rank(1);
  };
  const auto full = run("whole", 0), first = run("parts", 3), second = run("parts", 0);
  ASSERT_GE(full.size(), 6U);
  ASSERT_GE(first.size(), 6U);
  EXPECT_THAT(std::vector(first.end() - 3, first.end()), ElementsAre("save 3", "evaluation 3", "end 3 1"));
  EXPECT_EQ(std::vector(first.begin(), first.begin() + 6), std::vector(full.begin(), full.begin() + 6));
  EXPECT_EQ(second, std::vector(full.begin() + 6, full.end()));
}

TEST(Trainer, AnEvaluationCanEndTheRunWithACheckpoint) {
  const ScratchFolder scratch;
  const Config config = evaluated_config(scratch);
  Notified notified;
  EXPECT_EQ(train(config,
                  [&](Trainer& trainer) {
                    tell_all(trainer, notified);
                    trainer.add({.on_evaluation = [&](const EvaluationMetrics&) { trainer.end(); }});
                    const RunEnd end = trainer.run();
                    EXPECT_EQ(end.how, RunEnd::How::kEnded);
                    EXPECT_EQ(end.last_step, 2);
                    EXPECT_THAT(end.checkpoint, HasSubstr("checkpoints/"));
                  }),
            0);
  EXPECT_THAT(notified.of_rank(3), ElementsAre("step 1", "step 2", "evaluation 2", "save 2", "end 2 1"));
}

// The loss of the last evaluation of a run of `config` on rank 0, and all notifications of rank 0.
std::pair<double, std::vector<std::string>> evaluated(const Config& config) {
  Notified notified;
  double loss = 0;
  EXPECT_EQ(train(config,
                  [&](Trainer& trainer) {
                    tell_all(trainer, notified);
                    if (trainer.world().is_main())
                      trainer.add({.on_evaluation = [&](const EvaluationMetrics& all) { loss = all.loss; }});
                    trainer.run();
                  }),
            0);
  return {loss, notified.of_rank(0)};
}

TEST(Trainer, EvaluatesAFinishedRunWithoutTraining) {
  const ScratchFolder scratch;
  const std::string held_out = fmt::format("evaluation: {{path: \"{}\"}}\n", scratch / "text.txt"),
                    only = fmt::format("evaluation: {{path: \"{}\", only: true}}\n", scratch / "text.txt");
  const std::string saves = fmt::format("checkpoint: {{path: \"{}\"}}\n", scratch / "checkpoints");
  const auto [expected, steps] = evaluated(text_config(scratch, held_out + saves));
  EXPECT_GT(expected, 0);
  for (const char* from : {"resume", "load"}) {
    const std::string key = fmt::format("checkpoint: {{{}: \"{}\"}}\n", from, scratch / "checkpoints");
    const auto [loss, seen] = evaluated(text_config(scratch, only + key));
    EXPECT_NEAR(loss, expected, 1e-12) << from;
    const int done = std::string(from) == "resume" ? 6 : 0;
    EXPECT_THAT(seen, ElementsAre(fmt::format("evaluation {}", done), fmt::format("end {} 0", done))) << from;
  }
}

// A sink whose disk is full at a step.
struct FullDisk final : MetricSink {
  FullDisk(std::int64_t step, std::int64_t evaluation) : full_at_step(step), full_at_evaluation(evaluation) {}
  void write(const StepMetrics& step) override { require_space(step.step, full_at_step); }
  void write(const EvaluationMetrics& all) override { require_space(all.step, full_at_evaluation); }
  static void require_space(std::int64_t step, std::int64_t full_at) {
    if (step == full_at) throw ResourceError({"metrics.jsonl", "No space left on device", "disk space", ""});
  }
  std::int64_t full_at_step, full_at_evaluation;
};

TEST(Trainer, AFullDiskOfTheOutputEndsTheRunAfterACheckpoint) {
  struct Case {
    std::int64_t step, evaluation, saved;
  };
  for (const auto& [step, evaluation, saved] : {Case{3, -1, 3}, Case{6, -1, 6}, Case{-1, 4, 4}, Case{-1, 6, 6}}) {
    const ScratchFolder scratch;
    const Config config = evaluated_config(scratch);
    Notified notified;
    EXPECT_EQ(train(config,
                    [&](Trainer& trainer) {
                      tell_all(trainer, notified);
                      trainer.add(std::make_unique<FullDisk>(step, evaluation));
                      trainer.run();
                    }),
              ResourceError::kExitCode);
    EXPECT_EQ(find_newest_checkpoint(scratch / "checkpoints").folder,
              fmt::format("{}/step-{:06}", scratch / "checkpoints", saved));
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_THAT(notified.of_rank(rank), Contains(fmt::format("save {}", saved))) << rank;
  }
}

// The live report is rewritten after step 2. A directory at its path stands for a full disk.
TEST(Trainer, AReportThatCannotBeWrittenEndsTheRunAfterACheckpoint) {
  const ScratchFolder scratch;
  const Config config = text_config(
      scratch, fmt::format("output: \"{}\"\ncheckpoint: {{path: \"{}\"}}\n", scratch / "run", scratch / "checkpoints"));
  const auto block_report = [&](const StepMetrics& step) {
    if (step.step != 1) return;
    std::filesystem::remove(scratch / "run/report.json");
    std::filesystem::create_directories(scratch / "run/report.json/full");
  };
  EXPECT_EQ(train(config,
                  [&](Trainer& trainer) {
                    if (trainer.world().is_main()) trainer.add({.on_step = block_report});
                    trainer.run();
                  },
                  {.status = StatusPlace{}}),
            ResourceError::kExitCode);
  EXPECT_EQ(find_newest_checkpoint(scratch / "checkpoints").folder, scratch / "checkpoints/step-000003");
}

// The errors of a run whose losses are not finite, from stderr. It ends with code 8.
std::string errors_of_infinite_run(const Config& config) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(train(config,
                  [&](Trainer& trainer) {
                    trainer.use({.criterion = [](const TensorDict& outputs, const TensorDict& batch) {
                      return Loss{(outputs.at("logits") * std::nan("")).sum(), batch.at("labels").ne(-100).sum()};
                    }});
                    trainer.run();
                  }),
            8);
  return ::testing::internal::GetCapturedStderr();
}

TEST(Trainer, AFirstStepThatIsNotFiniteIsNoMatterOfRates) {
  const ScratchFolder scratch;
  EXPECT_THAT(errors_of_infinite_run(resolve_model(text_config(scratch))),
              HasSubstr("check the batch, the initial weights and the criterion: no step has changed the weights yet"));
}

TEST(Trainer, AnEvaluationThatIsNotFiniteEndsTheRun) {
  const ScratchFolder scratch;
  const Config config = resolve_model(text_config(
      scratch, fmt::format("evaluation: {{path: \"{}\", batches: 2, only: true}}\n", scratch / "text.txt")));
  EXPECT_THAT(errors_of_infinite_run(config), HasSubstr("evaluation at step 0: the loss is "));
}

}  // namespace
}  // namespace gantry::testing
