// Router losses and counts of chosen experts, compared with closed forms: padding does not count.
#include "gantry/nn/router_balance.h"

#include <gtest/gtest.h>

#include "gantry/nn/forward.h"
#include "gantry/nn/router.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

constexpr std::int64_t kBalanced = 4, kUsed = 2;

// experts / used * sum over experts of (share of the tokens that chose it) * (its mean probability).
double unevenness_of(const torch::Tensor& logits) {
  const torch::Tensor probabilities = logits.softmax(-1);
  const torch::Tensor ids = std::get<1>(probabilities.topk(kUsed, -1));
  const torch::Tensor chosen = torch::zeros_like(probabilities).scatter(-1, ids, 1).mean(0);
  return (chosen * probabilities.mean(0)).sum().item<double>() * kBalanced / kUsed;
}

TEST(RouterBalance, PaddingCountsNowhere) {
  nn::Router router(nn::RouterOptions{.hidden = 3, .experts = kBalanced, .used = kUsed});
  router->to(torch::kFloat64);
  {
    const torch::NoGradGuard no_grad;
    router->weight.copy_(torch::sin(1.3 * torch::arange(12, torch::kFloat64)).view({kBalanced, 3}));
  }
  const torch::Tensor tokens = torch::cos(0.9 * torch::arange(24, torch::kFloat64)).view({2, 4, 3});
  const torch::Tensor mask = torch::tensor({{0, 0, 1, 1}, {0, 1, 1, 1}});
  const nn::RouterBalance how{.loss = nn::RouterBalance::Loss::kSequence,
                              .coefficient = 0.5,
                              .z_coefficient = 0.25,
                              .labels = 1,
                              .sequences = 2,
                              .microbatches = 1,
                              .tokens = 5};
  TensorDict losses;
  nn::RouterChoices choices;
  Forward known;
  known.stage = StageContext::full(std::size_t{1}, {{"attention_mask", mask}});
  known.losses = &losses;
  known.balance = &how;
  known.choices = &choices;
  {
    const ForwardScope scope(known);
    router->forward(tokens);
  }
  const torch::Tensor logits = tokens.matmul(router->weight.t());
  const torch::Tensor first = logits[0].narrow(0, 2, 2), second = logits[1].narrow(0, 1, 3);
  EXPECT_NEAR(losses.at("router_loss").item<double>(), 0.5 * (unevenness_of(first) + unevenness_of(second)) / 2, 1e-12);
  const torch::Tensor counted = torch::cat({first, second});
  EXPECT_NEAR(losses.at("z_loss").item<double>(), 0.25 * counted.logsumexp(-1).square().mean().item<double>(), 1e-12);
  const torch::Tensor expected =
      torch::bincount(std::get<1>(counted.topk(kUsed, -1)).flatten(), /*weights=*/{}, kBalanced);
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_TRUE(choices.begin()->second.equal(expected)) << choices.begin()->second << expected;
}

}  // namespace
}  // namespace gantry::testing
