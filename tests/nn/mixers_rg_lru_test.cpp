// The gated linear recurrence: against its formula by tokens with autograd, from a state, one token at a time, and with
// texts that begin within a row.
#include <gtest/gtest.h>

#include "gantry/nn/mixers/rg_lru.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

// More channels than a kernel takes together.
constexpr std::int64_t kSamples = 2, kTokens = 13, kChannels = 133;

nn::RgLruInputs unit_inputs(const torch::Tensor& starts) {
  torch::manual_seed(4);
  const auto gate = [] { return torch::randn({kSamples, kTokens, kChannels}, torch::kFloat64); };
  return {.x = gate(),
          .input_gate = gate(),
          .recurrent_gate = gate(),
          .rate = torch::randn({kChannels}, torch::kFloat64),
          .starts = starts};
}

nn::RgLruInputs tokens_of(const nn::RgLruInputs& all, std::int64_t first, std::int64_t count) {
  const auto part = [&](const torch::Tensor& of) { return of.defined() ? of.narrow(1, first, count) : of; };
  return {part(all.x), part(all.input_gate), part(all.recurrent_gate), all.rate, part(all.starts)};
}

std::vector<torch::Tensor> lru_by_tokens(const nn::RgLruInputs& of, const torch::Tensor& state) {
  std::vector<torch::Tensor> states;
  torch::Tensor last = state;
  for (std::int64_t token = 0; token < kTokens; ++token) {
    const auto at = [token](const torch::Tensor& all) { return all.select(1, token); };
    const torch::Tensor starts = at(of.starts).unsqueeze(-1);
    const torch::Tensor logarithm = -8 * torch::sigmoid(at(of.recurrent_gate)) * torch::softplus(of.rate);
    const torch::Tensor decay = torch::exp(logarithm).masked_fill(starts, 0);
    const torch::Tensor factor = torch::sqrt(-torch::expm1(2 * logarithm)).masked_fill(starts, 1);
    last = decay * last + factor * torch::sigmoid(at(of.input_gate)) * at(of.x);
    states.push_back(last);
  }
  return {torch::stack(states, 1), last};
}

TEST(RgLru, HasTheStatesAndGradientsOfItsFormula) {
  torch::Tensor starts = torch::zeros({kSamples, kTokens}, torch::kBool);
  starts.index_put_({1, 6}, true);
  nn::RgLruInputs of = unit_inputs(starts);
  const torch::Tensor state = torch::randn({kSamples, kChannels}, torch::kFloat64).requires_grad_();
  const std::vector<torch::Tensor> leaves = {of.x.requires_grad_(), of.input_gate.requires_grad_(),
                                             of.recurrent_gate.requires_grad_(), of.rate.requires_grad_(), state};
  const auto gradients = [&](const torch::Tensor& out, const torch::Tensor& last) {
    const torch::Tensor weights = torch::arange(out.numel(), torch::kFloat64).view(out.sizes()).sin();
    return torch::autograd::grad({(out * weights).sum() + (last * weights.select(1, 0)).sum()}, leaves);
  };
  const auto expected = lru_by_tokens(of, state);
  const nn::RecurrenceResult made = nn::rg_lru(of, state);
  EXPECT_TRUE(torch::allclose(made.out, expected[0], 1e-12, 1e-12));
  EXPECT_TRUE(torch::allclose(made.state, expected[1], 1e-12, 1e-12));
  const auto wanted = gradients(expected[0], expected[1]), got = gradients(made.out, made.state);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(torch::allclose(got[i], wanted[i], 1e-10, 1e-11)) << i;
}

TEST(RgLru, OfOneTokenAtATimeIsThatOfAll) {
  const nn::RgLruInputs all = unit_inputs({});
  const nn::RecurrenceResult together = nn::rg_lru(all);
  torch::Tensor state;
  for (std::int64_t token = 0; token < kTokens; ++token) {
    const nn::RecurrenceResult one = nn::rg_lru(tokens_of(all, token, 1), state);
    EXPECT_TRUE(torch::allclose(one.out, together.out.narrow(1, token, 1), 1e-12, 1e-12)) << token;
    state = one.state;
  }
  EXPECT_TRUE(torch::allclose(state, together.state, 1e-12, 1e-12));
}

TEST(RgLru, ContinuesFromAState) {
  const nn::RgLruInputs all = unit_inputs({});
  const nn::RecurrenceResult first = nn::rg_lru(tokens_of(all, 0, 6)),
                             second = nn::rg_lru(tokens_of(all, 6, 7), first.state);
  EXPECT_TRUE(torch::allclose(torch::cat({first.out, second.out}, 1), nn::rg_lru(all).out, 1e-12, 1e-12));
}

// A text that begins within a row has no state, and its first input has the factor 1.
TEST(RgLru, BeginsTextsWithinARow) {
  torch::Tensor starts = torch::zeros({1, kTokens}, torch::kBool);
  starts.index_put_({0, 0}, true);
  starts.index_put_({0, 8}, true);
  const nn::RgLruInputs all = unit_inputs(starts.expand({kSamples, kTokens}));
  const torch::Tensor out = nn::rg_lru(all).out;
  EXPECT_TRUE(torch::allclose(out.narrow(1, 8, 5), nn::rg_lru(tokens_of(all, 8, 5)).out, 1e-12, 1e-12));
  EXPECT_TRUE(torch::allclose(out.select(1, 8), (all.x * torch::sigmoid(all.input_gate)).select(1, 8), 1e-12, 1e-12));
}

// Slopes of the square root are bounded where a gate is closed.
TEST(RgLru, HasFiniteGradientsForClosedGates) {
  nn::RgLruInputs all = unit_inputs({});
  all.recurrent_gate = torch::full_like(all.recurrent_gate, -800).requires_grad_();
  nn::rg_lru(all).out.sum().backward();
  EXPECT_TRUE(all.recurrent_gate.grad().isfinite().all().item<bool>());
}

TEST(RgLru, HasNarrowTypes) {
  const nn::RgLruInputs all = unit_inputs({});
  nn::RgLruInputs narrow = all;
  for (torch::Tensor* of : {&narrow.x, &narrow.input_gate, &narrow.recurrent_gate}) *of = of->to(torch::kBFloat16);
  const nn::RecurrenceResult made = nn::rg_lru(narrow);
  EXPECT_EQ(made.out.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(torch::allclose(made.out.to(torch::kFloat64), nn::rg_lru(all).out, 0.05, 0.05));
}

}  // namespace
}  // namespace gantry::testing
