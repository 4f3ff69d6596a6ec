// Averages of the weights (train.ema): values and checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/checkpoint/checkpoint.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "small_run.h"

namespace gantry::testing {
namespace {

constexpr double kDecay = 0.75;
constexpr const char* kAverage = "optimizer.average";

// The averages after `steps` steps of one rank, from the weights of each step.
TensorDict expected_averages(int steps) {
  TensorDict averages;
  run_small({.ema = 0}, [&](SmallRun& run) {
    averages = run.weights();
    for (int step = 1; step <= steps; ++step) {
      run.step(step);
      for (const auto& [name, weight] : run.weights()) {
        torch::Tensor average = averages.at(name);
        average.copy_(kDecay * average + (1 - kDecay) * weight);
      }
    }
  });
  return averages;
}

TEST(WeightAverage, IsThatOfOneRankInEveryLayout) {
  const TensorDict expected = expected_averages(4);
  for (const SmallRunOptions& options :
       std::vector<SmallRunOptions>{{.ema = kDecay},
                                    {.layout = {.data = 2, .tensor = 2}, .zero = 1, .ema = kDecay},
                                    {.layout = {.pipeline = 2, .tensor = 2}, .ema = kDecay},
                                    {.layout = {.data = 2}, .zero = 2, .ema = kDecay},
                                    {.layout = {.data = 2, .tensor = 4}, .zero = 3, .ema = kDecay}}) {
    const ScratchFolder scratch;
    run_small(options, [&](SmallRun& run) {
      for (int step = 1; step <= 2; ++step) run.step(step);
      run.save(scratch / "two", 2);
    });
    run_small(options, [&](SmallRun& run) {  // resumed
      run.load(require_checkpoint(scratch / "two"));
      for (int step = 3; step <= 4; ++step) run.step(step);
      run.save(scratch / "four", 4);
    });
    const auto averages = read_checkpoint_tensors(require_checkpoint(scratch / "four"), kAverage);
    ASSERT_EQ(averages.size(), expected.size());
    for (const auto& [name, average] : averages)
      EXPECT_LE((average - expected.at(name)).abs().max().item<double>(), 1e-10) << name;
  }
}

void expect_near(const TensorDict& actual, const TensorDict& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, value] : expected)
    EXPECT_LE((actual.at(name) - value).abs().max().item<double>(), tolerance) << name;
}

// The next step is that of a run that never exchanged them.
TEST(WeightAverage, IsExchangedWithTheWeightsAndBack) {
  const TensorDict expected = expected_averages(2);
  for (const SmallRunOptions& options :
       std::vector<SmallRunOptions>{{.ema = kDecay},
                                    {.layout = {.data = 2, .tensor = 2}, .zero = 1, .ema = kDecay},
                                    {.layout = {.pipeline = 2}, .ema = kDecay},
                                    {.layout = {.data = 2}, .zero = 2, .ema = kDecay},
                                    {.layout = {.data = 2, .tensor = 4}, .zero = 3, .ema = kDecay},
                                    {.layout = {.data = 2, .tensor = 2}, .zero = 3, .optimizer = "muon", .ema = kDecay},
                                    {.layout = {.data = 2}, .zero = 1, .precision = "bfloat16", .ema = kDecay}}) {
    TensorDict plain;
    run_small(options, [&](SmallRun& run) {
      for (int step = 1; step <= 3; ++step) run.step(step);
      plain = run.weights();
    });
    run_small(options, [&](SmallRun& run) {
      for (int step = 1; step <= 2; ++step) run.step(step);
      const TensorDict before = run.weights();
      run.boosted().optimizer->exchange_averages();
      if (options.precision == "float64" && options.optimizer == "adamw") expect_near(run.weights(), expected, 1e-10);
      EXPECT_THROW(run.step(3), UsageError);
      EXPECT_THROW(run.state().state_entries(), UsageError);
      run.boosted().optimizer->exchange_averages();
      expect_near(run.weights(), before, 0);
      run.boosted().optimizer->zero_grad();
      run.step(3);
      expect_near(run.weights(), plain, 0);
    });
  }
}

TEST(WeightAverage, IsNotThereToExchangeWithoutADecay) {
  run_small({}, [&](SmallRun& run) { EXPECT_THROW(run.boosted().optimizer->exchange_averages(), UsageError); });
}

TEST(WeightAverage, OfLowPrecisionIsOfTheMasterWeights) {
  const ScratchFolder scratch;
  run_small({.layout = {.data = 2}, .zero = 1, .precision = "bfloat16", .ema = kDecay}, [&](SmallRun& run) {
    run.step(1);
    run.save(scratch.path(), 1);
  });
  for (const auto& [name, average] : read_checkpoint_tensors(require_checkpoint(scratch.path()), kAverage))
    EXPECT_EQ(average.scalar_type(), torch::kFloat32) << name;
}

// If the checkpoint has no averages, they start from its weights.
TEST(WeightAverage, BeginsWithTheWeightsOfACheckpointWithoutAverages) {
  const ScratchFolder scratch;
  run_small({}, [&](SmallRun& run) {
    run.step(1);
    run.save(scratch / "without", 1);
  });
  run_small({.ema = kDecay}, [&](SmallRun& run) {
    run.load(require_checkpoint(scratch / "without"));
    run.save(scratch / "with", 1);
  });
  const std::string folder = require_checkpoint(scratch / "with");
  const auto weights = read_checkpoint_tensors(folder, "model");
  for (const auto& [name, average] : read_checkpoint_tensors(folder, kAverage))
    EXPECT_TRUE(torch::equal(average, weights.at(name))) << name;
}

TEST(WeightAverage, IsExportedInTheTypeOfTheWeights) {
  const ScratchFolder scratch;
  run_small({.precision = "bfloat16", .ema = kDecay}, [&](SmallRun& run) {
    for (int step = 1; step <= 2; ++step) run.step(step);
    run.save(scratch / "run", 2);
  });
  const std::string folder = require_checkpoint(scratch / "run");
  export_checkpoint(folder, scratch / "model", {.average = true});
  const auto averages = read_checkpoint_tensors(folder, kAverage);
  const TensorDict exported = read_safetensors(scratch / "model/model.safetensors");
  const torch::Tensor& norm = exported.at("model.norm.weight");
  EXPECT_EQ(norm.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(torch::equal(norm, averages.at("norm.weight").to(torch::kBFloat16)));
}

TEST(WeightAverage, ExportWithoutAveragesIsRefused) {
  const ScratchFolder scratch;
  run_small({}, [&](SmallRun& run) { run.save(scratch / "run", 0); });
  try {
    export_checkpoint(require_checkpoint(scratch / "run"), scratch / "model", {.average = true});
    ADD_FAILURE();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("the checkpoint has no averages of the weights"));
  }
}

}  // namespace
}  // namespace gantry::testing
