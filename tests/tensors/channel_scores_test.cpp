// Scores of tokens whose keys decay per channel, compared with their formula.
#include "gantry/tensors/kernels/channel_scores.h"

#include <gtest/gtest.h>

#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

kernels::ChannelTokens scored_tokens(std::int64_t tokens, std::int64_t channels) {
  torch::manual_seed(5);
  const auto drawn = [&] { return torch::randn({2, 3, tokens, channels}, torch::kFloat64); };
  return {drawn().requires_grad_(), drawn().requires_grad_(), (-drawn().abs()).cumsum(-2).requires_grad_()};
}

// Computes all exponents. Those of later keys are not used.
std::vector<torch::Tensor> formula(const kernels::ChannelTokens& of) {
  const torch::Tensor differences = of.sums.unsqueeze(-2) - of.sums.unsqueeze(-3);
  const torch::Tensor decayed = torch::exp(differences.clamp_max(0)) * of.key.unsqueeze(-3);
  return {(of.query.unsqueeze(-2) * decayed).sum(-1).tril(), (of.key.unsqueeze(-2) * decayed).sum(-1).tril(-1)};
}

// Numbers of tokens and channels that are multiples of the loops' block sizes, and others.
TEST(ChannelScores, HaveTheNumbersAndGradientsOfTheFormula) {
  for (const auto& [tokens, channels] : {std::pair{1, 5}, std::pair{16, 16}, std::pair{41, 37}, std::pair{64, 64}}) {
    SCOPED_TRACE(std::to_string(tokens) + " tokens, " + std::to_string(channels) + " channels");
    const kernels::ChannelTokens of = scored_tokens(tokens, channels);
    const auto expected = formula(of);
    const auto made = kernels::channel_scores(of);
    EXPECT_TRUE(torch::allclose(made.of_query, expected[0], 1e-12, 1e-12));
    EXPECT_TRUE(torch::allclose(made.of_key, expected[1], 1e-12, 1e-12));
    const torch::Tensor of_query = torch::randn_like(expected[0]), of_key = torch::randn_like(expected[1]);
    const auto wanted = torch::autograd::grad(expected, {of.query, of.key, of.sums}, {of_query, of_key});
    const kernels::ChannelTokens gradients = kernels::channel_scores_backward(of, {of_query, of_key});
    EXPECT_TRUE(torch::allclose(gradients.query, wanted[0], 1e-11, 1e-11));
    EXPECT_TRUE(torch::allclose(gradients.key, wanted[1], 1e-11, 1e-11));
    EXPECT_TRUE(torch::allclose(gradients.sums, wanted[2], 1e-11, 1e-11));
  }
}

}  // namespace
}  // namespace gantry::testing
