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

// Several pieces of tokens, more channels than a kernel takes together, 1 to 6 taps, a state and documents: against one
// token at a time.
TEST(CausalConvolution, OfManyTokensIsThatOfTokens) {
  constexpr std::int64_t kTokens = 150, kChannels = 270;
  for (const std::int64_t taps : {1, 2, 4, 6}) {
    SCOPED_TRACE(std::to_string(taps) + " taps");
    const torch::Tensor input = sines({2, kTokens, kChannels}, 0.7).requires_grad_(),
                        weight = sines({kChannels, taps}, 1.3).requires_grad_(),
                        bias = sines({kChannels}, 0.9).requires_grad_(),
                        state = sines({2, kChannels, taps - 1}, 1.1).requires_grad_();
    const torch::Tensor documents =
        torch::floor_divide(torch::arange(kTokens).unsqueeze(0) + torch::tensor({{0}, {30}}), 67);
    const nn::CausalConvolution by{weight, bias, true};
    const auto all = nn::causal_convolution(input, by, state, documents);
    std::vector<torch::Tensor> outs;
    torch::Tensor last = state;
    for (std::int64_t token = 0; token < kTokens; ++token) {
      if (token > 0) last = last * documents.narrow(1, token, 1).eq(documents.narrow(1, token - 1, 1)).unsqueeze(-1);
      const auto one = nn::causal_convolution(input.narrow(1, token, 1), by, last);
      outs.push_back(one.out);
      last = one.state;
    }
    const torch::Tensor out = torch::cat(outs, 1), seed = sines({2, kTokens, kChannels}, 0.3);
    expect_within(out, all.out, 1e-13, "out");
    if (taps > 1) expect_within(last, all.state, 1e-13, "state");
    const auto expected = torch::autograd::grad({out}, {input, weight, bias, state}, {seed});
    const auto actual = torch::autograd::grad({all.out}, {input, weight, bias, state}, {seed});
    for (std::size_t i = 0; i < actual.size(); ++i)
      if (actual[i].numel() > 0) expect_within(expected[i], actual[i], 1e-12, "gradient " + std::to_string(i));
  }
}

}  // namespace
}  // namespace gantry::testing
