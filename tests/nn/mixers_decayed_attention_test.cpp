// SSD and lightning attention by chunks: reference cases, one token at a time, pieces, documents and types.
#include <gtest/gtest.h>

#include "gantry/nn/mixers/lightning.h"
#include "gantry/nn/mixers/ssd.h"
#include "gantry/tensors/libtorch.h"
#include "operator_case.h"

namespace gantry::testing {
namespace {

nn::SsdInputs ssd_inputs(const TensorDict& of) {
  const torch::Tensor dt = torch::softplus(of.at("dt") + of.at("dt_bias"));
  return {of.at("x"), dt, -torch::exp(of.at("A_log")), of.at("B"), of.at("C"), of.at("D")};
}
nn::LightningInputs lightning_inputs(const TensorDict& of) {
  return {of.at("q"), of.at("k"), of.at("v"), of.at("slope")};
}

Operator ssd_of(std::int64_t chunk) {
  return [chunk](const TensorDict& inputs, const torch::Tensor& state, const torch::Tensor& documents) {
    const nn::RecurrenceResult result = nn::ssd(ssd_inputs(inputs), state, documents, chunk);
    return OperatorResult{result.out, result.state};
  };
}
Operator lightning_of(std::int64_t chunk) {
  return [chunk](const TensorDict& inputs, const torch::Tensor& state, const torch::Tensor& documents) {
    const nn::RecurrenceResult result = nn::lightning_attention(lightning_inputs(inputs), state, documents, chunk);
    return OperatorResult{result.out, result.state};
  };
}
OperatorResult one_ssd(const TensorDict& inputs, const torch::Tensor& state, const torch::Tensor&) {
  const nn::RecurrenceResult result = nn::ssd_step(ssd_inputs(inputs), state);
  return {result.out, result.state};
}
OperatorResult one_lightning(const TensorDict& inputs, const torch::Tensor& state, const torch::Tensor&) {
  const nn::RecurrenceResult result = nn::lightning_attention_step(lightning_inputs(inputs), state);
  return {result.out, result.state};
}

TEST(DecayedAttention, GivesTheReferenceNumbers) {
  for (const std::int64_t chunk : {1, 8, 37, 64}) {
    SCOPED_TRACE(chunk);
    expect_golden("op_ssd", ssd_of(chunk));
    expect_golden("op_lightning", lightning_of(chunk));
  }
}

TEST(DecayedAttention, OfPiecesAndDocumentsIsThatOfOne) {
  for (const std::int64_t first : {1, 16, 23}) {
    expect_pieces_equal("op_ssd", ssd_of(8), first);
    expect_pieces_equal("op_lightning", lightning_of(8), first);
  }
  expect_documents_separate("op_ssd", ssd_of(8));
  expect_documents_separate("op_lightning", lightning_of(8));
}

TEST(DecayedAttention, OfOneTokenAtATimeIsThatOfAll) {
  for (const std::int64_t chunk : {8, 64}) {
    expect_steps_equal("op_ssd", ssd_of(chunk), one_ssd);
    expect_steps_equal("op_lightning", lightning_of(chunk), one_lightning);
  }
}

TEST(DecayedAttention, HasNarrowTypes) {
  expect_narrow_types("op_ssd", ssd_of(8));
  expect_narrow_types("op_lightning", lightning_of(8));
}

}  // namespace
}  // namespace gantry::testing
