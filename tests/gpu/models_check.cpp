// Compares models on a device with the same models on the CPU: one step, many steps, and options that change
// the computation.
#include <cmath>
#include <gtest/gtest.h>

#include "checked_device.h"

namespace gantry::testing {
namespace {

// A device adds in another order than the CPU, so results match up to rounding.
constexpr double kFloat64 = 1e-9;
constexpr double kFloat32 = 2e-4;

ModelCase family_case(const std::string& family, const std::string& precision) {
  ModelCase what;
  what.family = family;
  what.precision = precision;
  what.key_heads = 2;
  // If a gradient is nearly zero, rounding decides AdamW's first steps.
  if (precision == "float32") what.optimizer = "sgd";
  return what;
}

void check_family(const std::string& family) {
  expect_as_on_cpu(family_case(family, "float64"), {}, kFloat64, family + " float64");
  expect_as_on_cpu(family_case(family, "float32"), {}, kFloat32, family + " float32");
}

TEST(DeviceModels, Gpt2ForwardAndBackward) { check_family("gpt2"); }
TEST(DeviceModels, LlamaForwardAndBackward) { check_family("llama"); }
TEST(DeviceModels, BertForwardAndBackward) { check_family("bert"); }

// 20 steps that repeat four batches, so that the loss falls.
ModelCase training_case(const std::string& precision) {
  ModelCase what;
  what.precision = precision;
  what.layers = 2;
  what.batches.assign(20, 6);
  what.distinct = 4;
  what.lr = 3e-3;
  return what;
}

void check_training(const std::string& precision, double tolerance) {
  const ModelCase what = training_case(precision);
  const CaseResult expected = run_case(what, {}, "local"), actual = run_checked(what);
  ASSERT_EQ(actual.losses.size(), 20u);
  EXPECT_LT(actual.losses.back(), actual.losses.front() - 0.3) << precision << " does not learn";
  for (std::size_t step = 0; step < 20; ++step)
    EXPECT_NEAR(actual.losses[step], expected.losses[step], tolerance * std::abs(expected.losses[step]))
        << precision << ", step " << step + 1;
}

TEST(DeviceTraining, TwentyStepsInFloat32) { check_training("float32", 1e-3); }
TEST(DeviceTraining, TwentyStepsInBfloat16) { check_training("bfloat16", 3e-2); }
TEST(DeviceTraining, TwentyStepsInFloat16) { check_training("float16", 1e-2); }

ModelCase option_case(double dropout = 0) {
  ModelCase what;
  what.family = "llama";
  what.key_heads = 2;
  what.dropout = dropout;
  what.precision = "float64";
  return what;
}

TEST(DeviceOptions, ZeroOneAndTwo) {
  for (const int zero : {1, 2})
    expect_as_on_cpu(option_case(), {.microbatches = 2, .zero = zero}, kFloat64, "zero " + std::to_string(zero));
}

TEST(DeviceOptions, Recomputation) {
  for (const char* recompute : {"selective", "full"})
    expect_as_on_cpu(option_case(), {.microbatches = 2, .recompute = recompute}, kFloat64, recompute);
}

TEST(DeviceOptions, DropoutHasTheCpusMasks) {
  expect_as_on_cpu(option_case(0.2), {.microbatches = 3}, kFloat64, "dropout");
  expect_as_on_cpu(option_case(0.2), {.microbatches = 3, .recompute = "full"}, kFloat64, "dropout, recomputed");
}

TEST(DeviceOptions, AccumulationOverCalls) {
  expect_as_on_cpu(option_case(), {.microbatches = 1, .accumulation = 3}, kFloat64, "accumulation");
}

// Replicas must compute identical values, so no kernel adds with atomics. The 42 tokens of a batch have only
// 7 values, so that several of them add to one row.
TEST(DeviceOptions, TheSameRunHasTheSameBits) {
  ModelCase what = family_case("gpt2", "float64");
  what.vocabulary = 7;
  expect_identical(run_checked(what), run_checked(what), "once more");
}

TEST(DeviceOptions, SplitBackwards) {
  for (const char* schedule : {"gpipe", "zb_h1"})
    expect_as_on_cpu(option_case(), {.schedule = schedule, .microbatches = 3}, kFloat64, schedule);
}

}  // namespace
}  // namespace gantry::testing
