// Rotations of pairs of features, compared with their formula in LibTorch's operators.
#include "gantry/tensors/kernels/rotate.h"

#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::kernels {
namespace {

torch::Tensor numbers_of(const std::vector<std::int64_t>& shape, double step) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return (torch::arange(count, torch::kFloat64) * step).sin().view(shape);
}

torch::Tensor by_formula(const torch::Tensor& heads, const torch::Tensor& cosine, const torch::Tensor& sine,
                         PairOrder order) {
  const std::int64_t pairs = cosine.size(-1);
  torch::Tensor out = heads.clone();
  const auto part = [&](const torch::Tensor& of, std::int64_t which) {
    return order == PairOrder::kAdjacent ? of.slice(-1, which, 2 * pairs, 2) : of.narrow(-1, which * pairs, pairs);
  };
  part(out, 0).copy_(part(heads, 0) * cosine - part(heads, 1) * sine);
  part(out, 1).copy_(part(heads, 1) * cosine + part(heads, 0) * sine);
  return out;
}

// Both orders, with and without features after the pairs, with angles per token and per sample.
TEST(Rotate, IsItsFormulaAndTurnsBack) {
  for (const PairOrder order : {PairOrder::kHalves, PairOrder::kAdjacent})
    for (const std::int64_t pairs : {4, 3})
      for (const bool by_sample : {false, true}) {
        const torch::Tensor heads = numbers_of({2, 3, 5, 8}, 0.7);
        const std::vector<std::int64_t> shape =
            by_sample ? std::vector<std::int64_t>{2, 1, 5, pairs} : std::vector<std::int64_t>{5, pairs};
        const torch::Tensor angles = numbers_of(shape, 1.3) * 3, cosine = angles.cos(), sine = angles.sin();
        const torch::Tensor there = rotate(heads, cosine, sine, order, Turn::kForward);
        EXPECT_TRUE(torch::allclose(there, by_formula(heads, cosine, sine, order), 1e-14, 1e-14));
        EXPECT_TRUE(torch::allclose(rotate(there, cosine, sine, order, Turn::kBack), heads, 1e-14, 1e-14));
      }
}

TEST(Rotate, RoundsHalfPrecisionsOnce) {
  const torch::Tensor heads = numbers_of({1, 2, 4, 16}, 0.7), angles = numbers_of({4, 8}, 1.3);
  for (const auto type : {torch::kBFloat16, torch::kFloat16}) {
    const torch::Tensor low = heads.to(type), cosine = angles.cos().to(type), sine = angles.sin().to(type);
    const auto wide = [](const torch::Tensor& tensor) { return tensor.to(torch::kFloat32); };
    const torch::Tensor expected = by_formula(wide(low), wide(cosine), wide(sine), PairOrder::kHalves).to(type);
    const torch::Tensor made = rotate(low, cosine, sine, PairOrder::kHalves, Turn::kForward);
    // float32 may fuse a multiplication and an addition: a number near the middle of two is rounded to either.
    EXPECT_TRUE(torch::allclose(made, expected, type == torch::kBFloat16 ? 8e-3 : 1e-3, 1e-6)) << type;
    EXPECT_GE((made == expected).sum().item<std::int64_t>(), heads.numel() - 4) << type;
  }
}

// Heads are parts of a projection [samples, tokens, heads, size]; the result has that order in memory, so neither
// attention nor the gradient of the projection copies it.
TEST(Rotate, KeepsTheOrderInMemory) {
  const torch::Tensor projected = numbers_of({2, 5, 3, 8}, 0.7), angles = numbers_of({5, 4}, 1.3);
  const torch::Tensor heads = projected.transpose(1, 2);
  const torch::Tensor made = rotate(heads, angles.cos(), angles.sin(), PairOrder::kHalves, Turn::kForward);
  EXPECT_EQ(made.strides().vec(), heads.strides().vec());
  EXPECT_TRUE(torch::allclose(made, by_formula(heads, angles.cos(), angles.sin(), PairOrder::kHalves), 1e-14, 1e-14));
  const torch::Tensor apart = numbers_of({2, 3, 8, 5}, 0.7).transpose(2, 3);
  EXPECT_TRUE(torch::allclose(rotate(apart, angles.cos(), angles.sin(), PairOrder::kHalves, Turn::kForward),
                              by_formula(apart, angles.cos(), angles.sin(), PairOrder::kHalves), 1e-14, 1e-14));
}

TEST(Rotate, RefusesAnglesThatDoNotFit) {
  const torch::Tensor heads = numbers_of({2, 3, 5, 8}, 0.7);
  const auto with = [&](const torch::Tensor& angles) {
    rotate(heads, angles, angles, PairOrder::kHalves, Turn::kForward);
  };
  EXPECT_THROW(with(numbers_of({4, 4}, 1)), InternalError);
  EXPECT_THROW(with(numbers_of({5, 5}, 1)), InternalError);
  EXPECT_THROW(with(numbers_of({5, 4}, 1).to(torch::kFloat32)), InternalError);
  EXPECT_THROW(with(numbers_of({3, 1, 5, 4}, 1)), InternalError);
}

}  // namespace
}  // namespace gantry::kernels
