// The gated linear recurrence by chunks: against a loop over tokens with autograd, from a state, one token at a time,
// and with texts that begin within a row.
#include <gtest/gtest.h>

#include "gantry/nn/mixers/linear_scan.h"
#include "gantry/nn/mixers/rg_lru.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

constexpr std::int64_t kSamples = 2, kTokens = 13, kChannels = 5;

torch::Tensor drawn_leaf(torch::IntArrayRef shape) { return torch::randn(shape, torch::kFloat64).requires_grad_(); }

struct ScanCase {
  torch::Tensor decay, input, initial;

  ScanCase() {
    torch::manual_seed(3);
    decay = torch::rand({kSamples, kTokens, kChannels}, torch::kFloat64).requires_grad_();
    input = drawn_leaf({kSamples, kTokens, kChannels});
    initial = drawn_leaf({kSamples, kChannels});
  }
  std::vector<torch::Tensor> gradients(const torch::Tensor& states) const {
    const torch::Tensor weights = torch::arange(1, states.numel() + 1, torch::kFloat64).view(states.sizes()).sin();
    return torch::autograd::grad({(states * weights).sum()}, {decay, input, initial});
  }
  torch::Tensor by_tokens() const {
    std::vector<torch::Tensor> states;
    torch::Tensor state = initial;
    for (std::int64_t token = 0; token < kTokens; ++token) {
      state = decay.select(1, token) * state + input.select(1, token);
      states.push_back(state);
    }
    return torch::stack(states, 1);
  }
};

TEST(LinearScan, HasTheStatesAndGradientsOfALoop) {
  const ScanCase of;
  const torch::Tensor expected = of.by_tokens();
  const auto wanted = of.gradients(expected);
  for (const std::int64_t chunk : {1, 4, 13, 64}) {
    SCOPED_TRACE(chunk);
    const torch::Tensor states = nn::linear_scan(of.decay, of.input, of.initial, chunk);
    EXPECT_TRUE(torch::allclose(states, expected, 1e-12, 1e-12));
    const auto made = of.gradients(states);
    for (std::size_t i = 0; i < made.size(); ++i) EXPECT_TRUE(torch::allclose(made[i], wanted[i], 1e-11, 1e-11)) << i;
  }
}

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

TEST(RgLru, OfOneTokenAtATimeIsThatOfAll) {
  const nn::RgLruInputs all = unit_inputs({});
  const nn::RecurrenceResult together = nn::rg_lru(all, {}, 4);
  torch::Tensor state;
  for (std::int64_t token = 0; token < kTokens; ++token) {
    const nn::RecurrenceResult one = nn::rg_lru_step(tokens_of(all, token, 1), state);
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
  const torch::Tensor out = nn::rg_lru(all, {}, 4).out;
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
