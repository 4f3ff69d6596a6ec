// The selective scan by chunks: reference cases, one token at a time, pieces, documents and types.
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
Operator scan_of(std::int64_t chunk) {
  return [chunk](const TensorDict& inputs, const torch::Tensor& state, const torch::Tensor& documents) {
    const nn::RecurrenceResult result = nn::selective_scan(scan_inputs(inputs), state, documents, chunk);
    return OperatorResult{result.out, result.state};
  };
}
OperatorResult one_scan(const TensorDict& inputs, const torch::Tensor& state, const torch::Tensor&) {
  const nn::RecurrenceResult result = nn::selective_scan_step(scan_inputs(inputs), state);
  return {result.out, result.state};
}

// Chunks of one and two tokens: 37 tokens are more than one group.
TEST(SelectiveScan, GivesTheReferenceNumbers) {
  for (const std::int64_t chunk : {1, 2, 8, 64}) {
    SCOPED_TRACE(chunk);
    expect_golden("op_selective_scan", scan_of(chunk));
  }
}

TEST(SelectiveScan, OfPiecesAndDocumentsIsThatOfOne) {
  for (const std::int64_t first : {1, 16, 23}) expect_pieces_equal("op_selective_scan", scan_of(4), first);
  for (const std::int64_t chunk : {2, 8}) expect_documents_separate("op_selective_scan", scan_of(chunk));
}

TEST(SelectiveScan, OfOneTokenAtATimeIsThatOfAll) {
  for (const std::int64_t chunk : {2, 8}) expect_steps_equal("op_selective_scan", scan_of(chunk), one_scan);
}

TEST(SelectiveScan, HasNarrowTypes) { expect_narrow_types("op_selective_scan", scan_of(8)); }

}  // namespace
}  // namespace gantry::testing
