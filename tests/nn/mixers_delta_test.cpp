// Delta rules by chunks: reference cases, one token at a time, pieces, documents, types and strong decays.
#include <gtest/gtest.h>

#include "gantry/nn/mixers/gated_delta.h"
#include "gantry/nn/mixers/kimi_delta.h"
#include "gantry/tensors/libtorch.h"
#include "operator_case.h"

namespace gantry::testing {
namespace {

nn::GatedDeltaInputs gated_delta_inputs(const TensorDict& of) {
  return {of.at("q"), of.at("k"), of.at("v"), of.at("g"), of.at("beta")};
}
nn::KimiDeltaInputs kimi_delta_inputs(const TensorDict& of) {
  return {of.at("q"), of.at("k"), of.at("v"), of.at("g"), of.at("beta")};
}
Operator gated_delta_of(std::int64_t chunk) {
  return [chunk](const TensorDict& inputs, const torch::Tensor& state, const torch::Tensor& documents) {
    const nn::RecurrenceResult result = nn::gated_delta(gated_delta_inputs(inputs), state, documents, chunk);
    return OperatorResult{result.out, result.state};
  };
}
Operator kimi_delta_of(std::int64_t chunk) {
  return [chunk](const TensorDict& inputs, const torch::Tensor& state, const torch::Tensor& documents) {
    const nn::RecurrenceResult result = nn::kimi_delta(kimi_delta_inputs(inputs), state, documents, chunk);
    return OperatorResult{result.out, result.state};
  };
}
OperatorResult one_gated_delta(const TensorDict& inputs, const torch::Tensor& state, const torch::Tensor&) {
  const nn::RecurrenceResult result = nn::gated_delta_step(gated_delta_inputs(inputs), state);
  return {result.out, result.state};
}
OperatorResult one_kimi_delta(const TensorDict& inputs, const torch::Tensor& state, const torch::Tensor&) {
  const nn::RecurrenceResult result = nn::kimi_delta_step(kimi_delta_inputs(inputs), state);
  return {result.out, result.state};
}

TEST(DeltaRules, GiveTheReferenceNumbers) {
  for (const std::int64_t chunk : {1, 8, 24, 64}) {
    SCOPED_TRACE(chunk);
    expect_golden("op_gated_delta", gated_delta_of(chunk));
    expect_golden("op_kda", kimi_delta_of(chunk));
  }
}

TEST(DeltaRules, OfPiecesAndDocumentsAreThoseOfOne) {
  for (const std::int64_t first : {1, 16, 23}) {
    expect_pieces_equal("op_gated_delta", gated_delta_of(8), first);
    expect_pieces_equal("op_kda", kimi_delta_of(8), first);
  }
  expect_documents_separate("op_gated_delta", gated_delta_of(8));
  expect_documents_separate("op_kda", kimi_delta_of(8));
}

TEST(DeltaRules, OfOneTokenAtATimeAreThoseOfAll) {
  for (const std::int64_t chunk : {8, 64}) {
    expect_steps_equal("op_gated_delta", gated_delta_of(chunk), one_gated_delta);
    expect_steps_equal("op_kda", kimi_delta_of(chunk), one_kimi_delta);
  }
}

TEST(DeltaRules, HaveNarrowTypes) {
  expect_narrow_types("op_gated_delta", gated_delta_of(8));
  expect_narrow_types("op_kda", kimi_delta_of(8));
}

// Decays of e^-80 per token: factors of a whole chunk would overflow float32.
TEST(DeltaRules, StayFiniteUnderStrongDecays) {
  const TensorDict golden = OperatorCase("op_kda").two_samples();
  TensorDict inputs = leaves(golden, torch::kFloat);
  inputs.set("g", (inputs.at("g").detach() * 0 - 80).requires_grad_());
  const OperatorResult result = kimi_delta_of(64)(inputs, {}, {});
  weighted_backward(result, inputs);
  for (const char* name : {"q", "k", "v", "g", "beta"})
    EXPECT_TRUE(inputs.at(name).grad().isfinite().all().item<bool>()) << name;
  const OperatorResult last = one_kimi_delta(tokens_of(inputs, 36, 1), {}, {});
  expect_within(last.out, result.out.narrow(1, 36, 1), 1e-6, "out");
}

}  // namespace
}  // namespace gantry::testing
