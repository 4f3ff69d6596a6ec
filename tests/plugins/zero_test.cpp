// ZeRO 1, ZeRO 2 and gradient buckets: the same numbers as one rank, less memory, any optimizer.
#include <gtest/gtest.h>

#include "bytes_of_steps.h"
#include "gantry/booster/recipe.h"
#include "gantry/optimizers/lion.h"
#include "gantry/tensors/libtorch.h"
#include "grid.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

std::vector<Parallelism> layouts(int zero) {
  std::vector<Parallelism> all;
  for (const auto& [pipeline, data, tensor] :
       {std::tuple(1, 2, 1), {1, 3, 1}, {2, 2, 1}, {1, 2, 2}, {2, 2, 2}, {3, 2, 1}})
    for (const char* schedule : {"1f1b", "zb_h1"})
      all.push_back({.layout = {.pipeline = pipeline, .data = data, .tensor = tensor},
                     .schedule = schedule,
                     .microbatches = 2,
                     .zero = zero});
  all.push_back({.layout = {.data = 2, .tensor = 2}, .microbatches = 3, .sequence_parallel = true, .zero = zero});
  all.push_back({.layout = {.pipeline = 2, .data = 2},
                 .schedule = "interleaved_1f1b",
                 .microbatches = 2,
                 .chunks = 2,
                 .recompute = "full",
                 .zero = zero});
  all.push_back({.layout = {.data = 4}, .microbatches = 2, .zero = zero});
  return all;
}

TEST(Zero, EveryOptimizerEqualsOneRank) {
  std::size_t index = 0;
  for (const int zero : {1, 2})
    for (const char* optimizer : {"adamw", "sgd", "lion"}) {
      ModelCase what{.layers = 4, .dropout = 0.1};
      what.optimizer = optimizer;
      // Lion updates by the sign, so rounding decides the update
      // of an exact zero. Only its first step is compared.
      if (what.optimizer == "lion") what.batches = {6};
      expect_layouts_equal(what, turn_of(index++ + static_cast<std::size_t>(zero), 3, layouts(zero)));
    }
}

TEST(Zero, TiesKeyHeadsThatRanksShareAndUntiedHeads) {
  for (const bool tied : {false, true}) {
    ModelCase what{.family = "llama", .layers = 3, .heads = 6, .key_heads = 2};
    what.tied = tied;
    for (const int zero : {1, 2})
      expect_layouts_equal(what,
                           {{.layout = {.data = 2, .tensor = 4}, .microbatches = 2, .zero = zero},
                            {.layout = {.pipeline = 3, .data = 2, .tensor = 3}, .microbatches = 2, .zero = zero}});
  }
}

TEST(GradientBuckets, ThatSetOutWhileTheBackwardRunsEqualOneRank) {
  ModelCase what{.layers = 4, .dropout = 0.1};
  expect_layouts_equal(what, layouts(0));
}

// The peak is that of the second of two steps.
BytesOfSteps train_alone(int zero, int replicas, const std::string& precision) {
  Config config = layout_config({.data = replicas});
  config.parallel.zero = zero;
  config.parallel.bucket_mb = 0.25;
  config.precision = precision;
  return bytes_of_steps(config);
}

constexpr double kWidth = kBytesWidth,
                 kParameters = 10 * (12 * kWidth * kWidth + 13 * kWidth) + (64 + 64 + 8 + 2) * kWidth;

// The formula of docs/layouts.md.
double formula(int zero, int replicas, const std::string& precision) {
  const bool low = precision == "bfloat16";
  const double values = low ? 2 : 4, gradients = 4, state = 8 + (low ? 4 : 0);
  return kParameters * (values + gradients / (zero > 1 ? replicas : 1) + state / (zero > 0 ? replicas : 1));
}

// Memory in flight under ZeRO 2: two buckets, which hold one
// parameter each here, and one gradient on its way into them.
double under_way(int zero, int replicas, const std::string& precision) {
  if (zero < 2 || replicas == 1) return 0;
  constexpr double kLargest = 4 * kWidth * kWidth;
  return kLargest * (2 * 4 + (precision == "bfloat16" ? 2 : 4));
}

TEST(Zero, MemoryIsThatOfTheFormula) {
  for (const char* precision : {"float32", "bfloat16"})
    for (const int zero : {0, 1, 2})
      for (const int replicas : {1, 2, 4}) {
        if (zero > 0 && replicas == 1) continue;  // the same as ZeRO 0
        const BytesOfSteps memory = train_alone(zero, replicas, precision);
        const double expected = formula(zero, replicas, precision);
        const std::string label = fmt::format("{} zero {} dp {}", precision, zero, replicas);
        EXPECT_NEAR(static_cast<double>(memory.held), expected, 0.02 * expected) << label;
        const double peak = expected + under_way(zero, replicas, precision);
        EXPECT_NEAR(static_cast<double>(memory.peak), peak, 0.05 * peak) << label;
        fmt::print("{}: {:.2f} MB held, {:.2f} MB at the peak; by the formula {:.2f} and {:.2f} MB\n", label,
                   static_cast<double>(memory.held) / 1e6, static_cast<double>(memory.peak) / 1e6, expected / 1e6,
                   peak / 1e6);
      }
}

}  // namespace
}  // namespace gantry::testing
