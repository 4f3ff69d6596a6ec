// Runs over streams: every layout gives the numbers of one rank, and a resumed run those of an uninterrupted one.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "counted_stream.h"
#include "gantry/booster/recipe.h"
#include "gantry/core/host/stop_request.h"
#include "gantry/launch/quiet_launch.h"
#include "gantry/trainer/run_checkpoints.h"
#include "gantry/trainer/run_stops.h"
#include "gantry/trainer/train.h"
#include "program.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kStreamSteps = 7;  // until the streams of kStreamLengths have ended
const std::vector<std::int64_t> kStreamLengths{5, 9, 2, 7};

std::shared_ptr<DataLoader> streams_of(int prefetch = 0, std::vector<std::int64_t> lengths = kStreamLengths) {
  const int streams = static_cast<int>(lengths.size());
  return std::make_shared<DataLoader>(StreamSource{.open = counted_streams(std::move(lengths)), .streams = streams},
                                      DataLoaderOptions{.global_batch = 6, .prefetch = prefetch});
}

Config stream_config(const std::string& layout, const std::string& keys = "train: {steps: 20}\n") {
  return Config::parse(
      fmt::format("model: {{policy: gpt2, config: {{n_embd: 8, n_layer: 2, n_head: 2, vocab_size: 400, n_positions: 8, "
                  "resid_pdrop: 0.1}}}}\nparallel: {}\nprecision: float64\nschedule: {{microbatches: 2}}\n"
                  "optimizer: {{lr: 1.0e-2, clip_grad_norm: 1.0}}\ncomm: {{threads_per_rank: 1}}\n{}",
                  layout, keys));
}

std::string saved_in(const ScratchFolder& scratch, int steps = 20, const std::string& more = "") {
  return fmt::format("train: {{steps: {}}}\ncheckpoint: {{path: \"{}\", resume: auto{}}}\n", steps,
                     scratch / "checkpoints", more);
}

struct StreamRun {
  std::vector<double> numbers;  // loss and gradient norm of each step
  RunEnd end;
  int code = 0;
};

// `stops_at`: a signal arrives during this step.
StreamRun run_streams(const Config& config, int prefetch = 0, std::int64_t stops_at = 0,
                      std::vector<std::int64_t> lengths = kStreamLengths) {
  StreamRun run;
  run.code = train(config, [&](Trainer& trainer) {
    trainer.use({.loader = streams_of(prefetch, lengths)});
    trainer.add({.on_batch = [&](std::int64_t step, const Batch&) {
      if (step == stops_at && trainer.world().is_main()) request_stop();
    }});
    if (trainer.world().is_main())
      trainer.add({.on_step =
                       [&](const StepMetrics& step) {
                         run.numbers.push_back(step.loss);
                         run.numbers.push_back(step.grad_norm);
                       },
                   .on_end = [&](const RunEnd& end) { run.end = end; }});
    trainer.run();
  });
  return run;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, const std::string& label) {
  ASSERT_EQ(actual.size(), expected.size()) << label;
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-10) << label << " " << i;
}

TEST(TrainerStreams, TrainAsOnOneRankUntilTheyHaveEnded) {
  const StreamRun one = run_streams(stream_config("{}"));
  EXPECT_EQ(one.code, 0);
  EXPECT_EQ(one.end.how, RunEnd::How::kEnded);
  ASSERT_EQ(one.end.last_step, kStreamSteps);
  for (const auto& [layout, prefetch] : std::vector<std::pair<std::string, int>>{
           {"{data: 4, zero: 1}", 2}, {"{data: 2, pipeline: 2}", 0}, {"{data: 2, tensor: 2, zero: 3}", 1}}) {
    const StreamRun run = run_streams(stream_config(layout), prefetch);
    EXPECT_EQ(run.end.last_step, kStreamSteps) << layout;
    expect_near(run.numbers, one.numbers, layout);
  }
}

TEST(TrainerStreams, ResumeWithTheNumbersOfAnUninterruptedRun) {
  const auto full = run_streams(stream_config("{data: 2}")).numbers;
  ASSERT_EQ(full.size(), 2u * kStreamSteps);
  for (const int prefetch : {0, 2}) {
    const ScratchFolder scratch;
    auto numbers = run_streams(stream_config("{data: 2}", saved_in(scratch, 3)), prefetch).numbers;
    EXPECT_EQ(numbers.size(), 6u);
    const StreamRun rest = run_streams(stream_config("{data: 2}", saved_in(scratch)), prefetch);
    numbers.insert(numbers.end(), rest.numbers.begin(), rest.numbers.end());
    EXPECT_EQ(numbers, full) << "prefetch " << prefetch;
    EXPECT_EQ(rest.end.last_step, kStreamSteps);
    // The streams have ended: nothing is left to train.
    const StreamRun none = run_streams(stream_config("{data: 4}", saved_in(scratch)));
    EXPECT_TRUE(none.numbers.empty());
    EXPECT_EQ(none.end.last_step, kStreamSteps);
    EXPECT_EQ(run_streams(stream_config("{}", saved_in(scratch)), 0, 0, {5, 9, 3, 8}).end.last_step, kStreamSteps + 1);
  }
}

TEST(TrainerStreams, ResumeWithOtherReplicasAfterAStepThatASignalInterrupted) {
  const auto full = run_streams(stream_config("{}")).numbers;
  const ScratchFolder scratch;
  const StreamRun first = run_streams(stream_config("{data: 2}", saved_in(scratch)), /*prefetch=*/2, /*stops_at=*/4);
  forget_stop();
  EXPECT_EQ(first.code, 75);
  ASSERT_EQ(first.numbers.size(), 6u);
  auto numbers = first.numbers;
  const auto rest = run_streams(stream_config("{data: 4}", saved_in(scratch))).numbers;
  numbers.insert(numbers.end(), rest.begin(), rest.end());
  expect_near(numbers, full, "data 2, then 4");
}

// Runs a custom training loop up to the step `last`.
std::vector<double> run_stream_loop(const Config& config, std::int64_t last) {
  std::vector<double> losses;
  EXPECT_EQ(train_by_loop(resolve_model(config),
                          [&](World& world) {
                            Booster booster(std::make_unique<HybridParallelPlugin>(world, world.config()));
                            auto model = build_model(world.config());
                            auto boosted = booster.boost(model, build_optimizer(world.config(), *model),
                                                         build_criterion(world.config()), streams_of());
                            RunCheckpoints checkpoints(world, world.config(), booster.plugin());
                            const RunStops stops(world.config(), booster.mesh());
                            std::int64_t step = checkpoints.resume(boosted);
                            while (step < last && !stops.out_of_samples(*boosted.loader)) {
                              ++step;
                              const auto result =
                                  booster.execute_pipeline(boosted.loader->next(), boosted, {.broadcast_loss = true});
                              boosted.optimizer->step();
                              boosted.optimizer->zero_grad();
                              if (world.is_main()) losses.push_back(*result.loss);
                            }
                            checkpoints.save(step, boosted);
                            checkpoints.finish();
                            return false;
                          }),
            0);
  return losses;
}

TEST(TrainerStreams, LoopsOfTheProgramsOwnResumeToo) {
  const auto full = run_streams(stream_config("{data: 2}")).numbers;
  const ScratchFolder scratch;
  auto losses = run_stream_loop(stream_config("{data: 2}", saved_in(scratch)), 2);
  EXPECT_EQ(losses.size(), 2u);
  for (const double loss : run_stream_loop(stream_config("{data: 2}", saved_in(scratch)), 100)) losses.push_back(loss);
  ASSERT_EQ(losses.size(), static_cast<std::size_t>(kStreamSteps));
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_EQ(losses[i], full[2 * i]) << i;
}

std::string refusal(const Config& config, TrainerParts parts) {
  const auto failure = launch_quietly(config, [&](World& world) {
    Trainer trainer(world, world.config());
    trainer.use(parts);
    trainer.run();
  });
  return failure ? failure->line : "nothing failed";
}

TEST(TrainerStreams, RefuseOtherStreamsAndWhatNeedsALength) {
  const ScratchFolder scratch;
  EXPECT_EQ(run_streams(stream_config("{}", saved_in(scratch, 1))).end.last_step, 1);
  const Config config = resolve_model(stream_config("{}", saved_in(scratch)));
  EXPECT_THAT(refusal(config, {.loader = streams_of(0, {5, 9})}),
              HasSubstr("the checkpoint was made with 4 streams, and this run has 2: samples would be skipped"));
  const auto data_set = std::make_shared<DataLoader>(
      std::make_shared<FunctionDataset>(8, [](std::int64_t) { return *CountedStream(0, 1).next(); }),
      DataLoaderOptions{.global_batch = 6});
  EXPECT_THAT(refusal(config, {.loader = data_set}), HasSubstr("was made with streams, and this run reads a data set"));
  EXPECT_EQ(run_streams(stream_config("{}", saved_in(scratch, 3, ", allow_changes: true")), 0, 0, {5, 9}).end.last_step,
            3);
  const Config fresh = resolve_model(stream_config("{}"));
  EXPECT_THAT(refusal(fresh, {.loader = data_set, .evaluation_loader = streams_of()}),
              HasSubstr("evaluation_loader reads streams"));
  EXPECT_THAT(refusal(resolve_model(stream_config("{}", "train: {epochs: 2}\n")), {.loader = streams_of()}),
              HasSubstr("train.epochs: the length of the program's streams is not known"));
  Config elastic = fresh;
  elastic.elastic.min_replicas = 1;
  elastic.schedule.microbatches = std::nullopt;
  elastic.schedule.microbatch_size = 1;
  EXPECT_THAT(refusal(elastic, {.loader = streams_of()}), HasSubstr("elastic jobs do not support a loader of streams"));
  EXPECT_THAT(refusal(resolve_model(stream_config("{data: 3}")), {.loader = streams_of()}),
              HasSubstr("4 streams can't be split over 3 replicas"));
}

}  // namespace
}  // namespace gantry::testing
