// The selective scan: reference cases, one token at a time, pieces, documents and types.
#include <gtest/gtest.h>

#include "gantry/nn/mixers/selective_scan.h"
#include "gantry/tensors/libtorch.h"
#include "operator_case.h"

namespace gantry::testing {
namespace {

nn::SelectiveScanInputs scan_inputs(const TensorDict& of) {
  const torch::Tensor dt = torch::softplus(of.at("dt") + of.at("dt_bias"));
  return {of.at("u"), dt, -torch::exp(of.at("A_log")), of.at("B"), of.at("C"), of.at("D")};
}
OperatorResult scan(const TensorDict& inputs, const torch::Tensor& state, const torch::Tensor& documents) {
  const nn::RecurrenceResult result = nn::selective_scan(scan_inputs(inputs), state, documents);
  return {result.out, result.state};
}
OperatorResult one_scan(const TensorDict& inputs, const torch::Tensor& state, const torch::Tensor&) {
  const nn::RecurrenceResult result = nn::selective_scan_step(scan_inputs(inputs), state);
  return {result.out, result.state};
}

// 37 tokens are more than those between two kept states.
TEST(SelectiveScan, GivesTheReferenceNumbers) { expect_golden("op_selective_scan", scan); }

TEST(SelectiveScan, OfPiecesAndDocumentsIsThatOfOne) {
  for (const std::int64_t first : {1, 16, 23, 32, 33}) expect_pieces_equal("op_selective_scan", scan, first);
  expect_documents_separate("op_selective_scan", scan);
}

TEST(SelectiveScan, OfOneTokenAtATimeIsThatOfAll) { expect_steps_equal("op_selective_scan", scan, one_scan); }

TEST(SelectiveScan, HasNarrowTypes) { expect_narrow_types("op_selective_scan", scan); }

// Random inputs in float64, with a state of `states` numbers in each channel and documents of various lengths.
struct WideScan {
  nn::SelectiveScanInputs inputs;
  torch::Tensor state, documents;

  WideScan(std::int64_t channels, std::int64_t states, std::int64_t tokens) {
    torch::manual_seed(7);
    const auto leaf = [](torch::IntArrayRef shape, double low, double high) {
      return torch::empty(shape, torch::kFloat64).uniform_(low, high).requires_grad_();
    };
    inputs = {leaf({2, tokens, channels}, -1, 1), leaf({2, tokens, channels}, 0.01, 1), leaf({channels, states}, -9, 0),
              leaf({2, tokens, states}, -1, 1),   leaf({2, tokens, states}, -1, 1),     leaf({channels}, -1, 1)};
    state = leaf({2, channels, states}, -1, 1);
    documents = torch::floor_divide(torch::arange(tokens).unsqueeze(0) + torch::tensor({{0}, {4}}), 19);
  }
  std::vector<torch::Tensor> gradients(const OperatorResult& result) const {
    const auto weights = [](const torch::Tensor& of) { return torch::arange(of.numel()).view(of.sizes()).sin(); };
    return torch::autograd::grad(
        {(result.out * weights(result.out)).sum() + (result.state * weights(result.state)).sum()},
        {inputs.x, inputs.dt, inputs.a, inputs.b, inputs.c, inputs.d, state});
  }
  OperatorResult by_tokens() const {
    std::vector<torch::Tensor> outs;
    torch::Tensor last = state;
    for (std::int64_t token = 0; token < inputs.x.size(1); ++token) {
      const auto at = [token](const torch::Tensor& of) { return of.narrow(1, token, 1); };
      if (token > 0) last = last * at(documents).eq(documents.narrow(1, token - 1, 1)).unsqueeze(-1);
      const nn::RecurrenceResult one =
          nn::selective_scan_step({at(inputs.x), at(inputs.dt), inputs.a, at(inputs.b), at(inputs.c), inputs.d}, last);
      outs.push_back(one.out);
      last = one.state;
    }
    return {torch::cat(outs, 1), last};
  }
};

// More channels than a kernel takes together, and states of several sizes.
TEST(SelectiveScan, OfManyChannelsIsThatOfTokens) {
  for (const auto& [channels, states] : {std::pair{64, 16}, std::pair{130, 5}, std::pair{3, 40}}) {
    SCOPED_TRACE(std::to_string(channels) + " channels, " + std::to_string(states) + " states");
    const WideScan of(channels, states, 70);
    const nn::RecurrenceResult all = nn::selective_scan(of.inputs, of.state, of.documents);
    const OperatorResult made{all.out, all.state}, expected = of.by_tokens();
    expect_within(expected.out, made.out, 1e-12, "out");
    expect_within(expected.state, made.state, 1e-12, "state");
    const auto wanted = of.gradients(expected), got = of.gradients(made);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      expect_within(wanted[i], got[i], 1e-12, "gradient " + std::to_string(i));
  }
}

}  // namespace
}  // namespace gantry::testing
