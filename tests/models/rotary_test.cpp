// Rotary embeddings compared with their authors' formulas, by hand.
#include "gantry/nn/rotary.h"

#include <cmath>
#include <gtest/gtest.h>

#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

// Rotates a head that is (1, 0) in each pair by the position
// `place`. The result must be the cosines, then the sines.
void expect_turned(nn::Rotary& rotary, std::int64_t place, std::int64_t length, const std::vector<double>& frequencies,
                   double factor) {
  const auto pairs = static_cast<std::int64_t>(frequencies.size());
  torch::Tensor head = torch::zeros({1, 1, 1, 2 * pairs}, torch::kFloat64);
  head.narrow(3, 0, pairs).fill_(1);
  const torch::Tensor turned = rotary(head, torch::full({1, 1}, place, torch::kInt64), length).flatten();
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    const double angle = static_cast<double>(place) * frequencies[pair];
    EXPECT_NEAR(turned[pair].item<double>(), factor * std::cos(angle), 1e-6) << pair;
    EXPECT_NEAR(turned[pairs + pair].item<double>(), factor * std::sin(angle), 1e-6) << pair;
  }
}

// The factor of each pair depends on the sequence's length. Cosine and sine are multiplied by
// sqrt(1 + ln(factor) / ln(original length)).
TEST(Rotary, LongropeChoosesItsFactorsByTheLengthOfTheText) {
  nn::Rotary rotary(6, {.theta = 100,
                        .type = "longrope",
                        .factor = 4,
                        .original_positions = 8,
                        .short_factors = {1, 1.1, 1.5},
                        .long_factors = {1, 2, 4}});
  const double attention = std::sqrt(1 + std::log(4) / std::log(8));
  const auto frequency = [](double pair, double factor) { return 1 / (factor * std::pow(100.0, 2 * pair / 6)); };
  expect_turned(rotary, 5, 8, {frequency(0, 1), frequency(1, 1.1), frequency(2, 1.5)}, attention);
  expect_turned(rotary, 5, 9, {frequency(0, 1), frequency(1, 2), frequency(2, 4)}, attention);
  expect_turned(rotary, 3, 2, {frequency(0, 1), frequency(1, 1.1), frequency(2, 1.5)}, attention);
}

TEST(Rotary, LongropesAttentionFactorMayBeStated) {
  nn::Rotary rotary(4, {.theta = 100,
                        .type = "longrope",
                        .factor = 4,
                        .original_positions = 8,
                        .attention_factor = 1.25,
                        .short_factors = {1, 3},
                        .long_factors = {2, 2}});
  expect_turned(rotary, 7, 8, {1, 0.1 / 3}, 1.25);
  expect_turned(rotary, 7, 20, {0.5, 0.05}, 1.25);
}

}  // namespace
}  // namespace gantry::testing
