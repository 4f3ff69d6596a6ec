// Comparison of two results of a case.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "gantry/tensors/libtorch.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

bool is_key_bias(const std::string& name) { return name.ends_with("attn.qkv.bias"); }

double largest(const torch::Tensor& tensor) { return tensor.numel() ? tensor.abs().max().item<double>() : 0; }

double largest_of(const TensorDict& tensors) {
  double all = 0;
  for (const auto& [name, tensor] : tensors) all = std::max(all, largest(tensor));
  return all;
}

// Expects that no tensor differs by more than `tolerance`, relative to its largest entry or, if that is
// larger, to a thousandth of the largest gradient.
void expect_tensors(const TensorDict& expected, const TensorDict& actual, const TensorDict& gradients, double tolerance,
                    bool weights, const std::string& label) {
  const double floor = largest_of(gradients) / 1000;
  ASSERT_EQ(expected.size(), actual.size()) << label;
  for (const auto& [name, tensor] : expected) {
    torch::Tensor a = tensor, b = actual.at(name);
    // If the exact gradient is zero (a bias that softmax over tokens cancels), AdamW amplifies rounding
    // errors.
    const bool trained = gradients.contains(name);
    if (weights && trained && largest(gradients.at(name)) < 1e-10 * 1000 * floor) continue;
    if (weights && is_key_bias(name)) {  // the middle third is the key's
      const auto third = a.size(0) / 3;
      a = torch::cat({a.narrow(0, 0, third), a.narrow(0, 2 * third, third)});
      b = torch::cat({b.narrow(0, 0, third), b.narrow(0, 2 * third, third)});
    }
    const double difference = largest(a - b) / std::max({largest(a), floor, 1e-300});
    EXPECT_LE(difference, tolerance) << label << (weights ? " weight " : " gradient ") << name;
    if (!(difference <= tolerance)) return;
  }
}

void expect_loads(const ExpertLoads& expected, const ExpertLoads& actual, const std::string& label) {
  if (expected.layers.empty() || actual.layers.empty()) return;
  EXPECT_EQ(actual.dropped, 0) << label;
  ASSERT_EQ(actual.layers.size(), expected.layers.size()) << label;
  for (std::size_t layer = 0; layer < expected.layers.size(); ++layer) {
    EXPECT_EQ(actual.layers[layer].router, expected.layers[layer].router) << label;
    EXPECT_EQ(actual.layers[layer].tokens, expected.layers[layer].tokens)
        << label << " " << expected.layers[layer].router;
  }
}

}  // namespace

void expect_equal(const CaseResult& expected, const CaseResult& actual, double tolerance, const std::string& label) {
  ASSERT_EQ(expected.losses.size(), actual.losses.size()) << label;
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(actual.losses[i], expected.losses[i], tolerance * std::abs(expected.losses[i]))
        << label << " loss of step " << i + 1;
    EXPECT_NEAR(actual.norms[i], expected.norms[i], tolerance * std::abs(expected.norms[i]))
        << label << " norm of step " << i + 1;
    EXPECT_EQ(actual.added[i].size(), expected.added[i].size()) << label;
    expect_loads(expected.loads[i], actual.loads[i], label + " step " + std::to_string(i + 1));
    for (const auto& [name, loss] : expected.added[i])
      EXPECT_NEAR(actual.added[i].at(name), loss, tolerance * std::abs(loss)) << label << " " << name;
  }
  expect_tensors(expected.gradients, actual.gradients, expected.gradients, tolerance, false, label);
  expect_tensors(expected.weights, actual.weights, expected.gradients, tolerance, true, label);
}

void expect_identical(const CaseResult& expected, const CaseResult& actual, const std::string& label) {
  EXPECT_EQ(expected.losses, actual.losses) << label;
  for (const auto& [name, tensor] : expected.gradients)
    EXPECT_TRUE(torch::equal(tensor, actual.gradients.at(name))) << label << " gradient " << name;
  for (const auto& [name, tensor] : expected.weights)
    EXPECT_TRUE(torch::equal(tensor, actual.weights.at(name))) << label << " weight " << name;
}

}  // namespace gantry::testing
