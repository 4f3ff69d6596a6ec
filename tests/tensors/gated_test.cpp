// Gated values: the functions of host and device, compared with LibTorch's activations and autograd.
#include "gantry/tensors/kernels/gated.h"

#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/tensors/aligned_rows.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::kernels {
namespace {

constexpr GateFunction kFunctions[] = {GateFunction::kSilu, GateFunction::kGelu, GateFunction::kTanhGelu};

torch::Tensor activated(const torch::Tensor& gate, GateFunction function) {
  if (function == GateFunction::kSilu) return torch::silu(gate);
  return torch::gelu(gate, function == GateFunction::kGelu ? "none" : "tanh");
}

GateNumbers<double> numbers_at(GateFunction function, double x) {
  if (function == GateFunction::kSilu) return gate_at<GateFunction::kSilu>(x);
  return function == GateFunction::kGelu ? gate_at<GateFunction::kGelu>(x) : gate_at<GateFunction::kTanhGelu>(x);
}

TEST(GateFunctions, HaveTheValuesAndSlopesOfLibTorch) {
  for (const GateFunction function : kFunctions) {
    const torch::Tensor gate = torch::linspace(-12, 12, 241, torch::kFloat64).requires_grad_();
    const torch::Tensor values = activated(gate, function);
    values.sum().backward();
    for (std::int64_t i = 0; i < gate.numel(); ++i) {
      const GateNumbers<double> numbers = numbers_at(function, gate[i].item<double>());
      EXPECT_NEAR(numbers.value, values[i].item<double>(), 1e-12) << static_cast<int>(function) << " " << i;
      EXPECT_NEAR(numbers.slope, gate.grad()[i].item<double>(), 1e-12) << static_cast<int>(function) << " " << i;
    }
  }
}

// Gates and values are the halves of one matrix.
TEST(Gated, HasTheProductAndGradientsOfAutograd) {
  for (const GateFunction function : kFunctions) {
    const torch::Tensor both = (torch::arange(7 * 10, torch::kFloat64) * 0.7).sin().mul_(3).view({7, 10});
    const torch::Tensor gate = both.narrow(1, 0, 5), values = both.narrow(1, 5, 5);
    const torch::Tensor gradient = (torch::arange(35, torch::kFloat64) * 0.3).cos().view({7, 5});
    const torch::Tensor a = gate.clone().requires_grad_(), b = values.clone().requires_grad_();
    const torch::Tensor expected = activated(a, function) * b;
    expected.backward(gradient);

    EXPECT_TRUE(torch::allclose(gated(gate, values, function), expected, 1e-14, 1e-14));
    torch::Tensor of_both = torch::empty_like(both);
    torch::Tensor of_gate = of_both.narrow(1, 0, 5), of_values = of_both.narrow(1, 5, 5);
    gated_backward(of_gate, of_values, gradient, gate, values, function);
    EXPECT_TRUE(torch::allclose(of_both, torch::cat({a.grad(), b.grad()}, 1), 1e-14, 1e-14));
  }
}

TEST(Gated, RefusesMatricesThatDoNotFit) {
  const torch::Tensor gate = torch::ones({2, 3});
  EXPECT_THROW(gated(gate, torch::ones({2, 4}), GateFunction::kSilu), InternalError);
  EXPECT_THROW(gated(gate, torch::ones({2, 3}, torch::kFloat64), GateFunction::kSilu), InternalError);
}

TEST(ProductParts, SplitLargeOddSizesOfHalfPrecisionsOnDevices) {
  const auto sizes = [](std::int64_t columns, torch::Device device, torch::ScalarType type) {
    std::vector<std::int64_t> made;
    for (const Range& part : product_parts(columns, torch::dtype(type).device(device))) made.push_back(part.size());
    return made;
  };
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(sizes(50257, torch::kCUDA, torch::kBFloat16), (Sizes{50256, 1}));
  EXPECT_EQ(sizes(50257, torch::kCUDA, torch::kFloat16), (Sizes{50256, 1}));
  EXPECT_EQ(sizes(50264, torch::kCUDA, torch::kBFloat16), (Sizes{50264}));
  EXPECT_EQ(sizes(50257, torch::kCUDA, torch::kFloat32), (Sizes{50257}));
  EXPECT_EQ(sizes(50257, torch::kCPU, torch::kBFloat16), (Sizes{50257}));
  EXPECT_EQ(sizes(257, torch::kCUDA, torch::kBFloat16), (Sizes{257}));
}

}  // namespace
}  // namespace gantry::kernels
