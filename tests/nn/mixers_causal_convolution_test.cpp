// Causal depthwise convolution: reference cases, one token at a time, pieces, documents and types.
#include <gtest/gtest.h>

#include "gantry/nn/mixers/causal_convolution.h"
#include "gantry/tensors/libtorch.h"
#include "operator_case.h"
#include "sines.h"

namespace gantry::testing {
namespace {

OperatorResult convolve(const TensorDict& inputs, const torch::Tensor& state, const torch::Tensor& documents) {
  const auto result = nn::causal_convolution(
      inputs.at("x"), {.weight = inputs.at("weight"), .bias = inputs.at("bias"), .silu = true}, state, documents);
  return {result.out, result.state};
}

TEST(CausalConvolution, GivesTheReferenceNumbers) { expect_golden("op_conv", convolve); }

TEST(CausalConvolution, OfPiecesAndDocumentsIsThatOfOne) {
  for (const std::int64_t first : {1, 2, 3, 20, 36}) expect_pieces_equal("op_conv", convolve, first);
  expect_documents_separate("op_conv", convolve);
}

TEST(CausalConvolution, OfOneTokenAtATimeIsThatOfAll) { expect_steps_equal("op_conv", convolve, convolve); }

TEST(CausalConvolution, HasNarrowTypes) { expect_narrow_types("op_conv", convolve); }

// Without bias and activation, against LibTorch's convolution.
TEST(CausalConvolution, WithoutActivationIsLibTorchs) {
  const torch::Tensor input = sines({2, 11, 6}, 0.7).requires_grad_(), weight = sines({6, 3}, 1.3).requires_grad_();
  const torch::Tensor ours = nn::causal_convolution(input, {.weight = weight}).out;
  const torch::Tensor padded = torch::constant_pad_nd(input.transpose(1, 2), {2, 0});
  const torch::Tensor theirs =
      torch::conv1d(padded, weight.unsqueeze(1), {}, 1, torch::IntArrayRef{0}, 1, 6).transpose(1, 2);
  expect_within(theirs, ours, 1e-13, "out");
  const torch::Tensor seed = sines({2, 11, 6}, 0.3);
  const auto expected = torch::autograd::grad({theirs}, {input, weight}, {seed});
  const auto actual = torch::autograd::grad({ours}, {input, weight}, {seed});
  for (std::size_t i = 0; i < expected.size(); ++i) expect_within(expected[i], actual[i], 1e-13, "gradient");
}

}  // namespace
}  // namespace gantry::testing
