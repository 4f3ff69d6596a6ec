// Reference cases of a mixer's operator (tests/golden/mixers): inputs, results from a zero state, from a
// given state and for packed documents, and the gradients of a loss.
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {

struct OperatorCase {
  TensorDict inputs, expected;

  explicit OperatorCase(const std::string& name) : inputs(read(name, "inputs")), expected(read(name, "expected")) {}

  // The inputs. If the case has only one sample, a second one with other values is added.
  TensorDict two_samples() const {
    TensorDict made;
    for (const auto& [name, tensor] : inputs)
      made.set(name, tensor.dim() > 1 && tensor.size(0) == 1 ? torch::cat({tensor, tensor.flip(-1)}) : tensor);
    return made;
  }

 private:
  static TensorDict read(const std::string& name, const std::string& file) {
    return read_safetensors(std::string(GANTRY_SOURCE_DIR) + "/tests/golden/mixers/" + name + "/" + file +
                            ".safetensors");
  }
};

struct OperatorResult {
  torch::Tensor out, state;
};
// An operator on the named inputs of a case. The initial state and the documents may be undefined.
using Operator =
    std::function<OperatorResult(const TensorDict& inputs, const torch::Tensor& state, const torch::Tensor& documents)>;

inline void expect_within(const torch::Tensor& expected, const torch::Tensor& actual, double tolerance,
                          const std::string& label) {
  ASSERT_EQ(expected.sizes(), actual.sizes()) << label;
  const torch::Tensor wanted = expected.detach().to(torch::kDouble);
  const double scale = std::max(1.0, wanted.abs().max().item<double>());
  EXPECT_LE((actual.detach().to(torch::kDouble) - wanted).abs().max().item<double>(), tolerance * scale) << label;
}

// Copies of type `type` that require gradients.
inline TensorDict leaves(const TensorDict& of, torch::ScalarType type = torch::kDouble) {
  TensorDict made;
  for (const auto& [name, tensor] : of)
    made.set(name, tensor.is_floating_point() ? tensor.detach().to(type, false, true).requires_grad_() : tensor);
  return made;
}

// The gradients of the loss of the cases.
inline void weighted_backward(const OperatorResult& result, const TensorDict& inputs) {
  ((result.out * inputs.at("weight_out").detach()).sum() + (result.state * inputs.at("weight_state").detach()).sum())
      .backward();
}

inline void expect_equal_gradients(const TensorDict& expected, const TensorDict& actual, double tolerance) {
  for (const auto& [key, tensor] : expected)
    if (tensor.grad().defined()) expect_within(tensor.grad(), actual.at(key).grad(), tolerance, "gradient of " + key);
}

inline void expect_golden(const std::string& name, const Operator& compute, double tolerance = 1e-12) {
  SCOPED_TRACE(name);
  const OperatorCase golden(name);
  const TensorDict inputs = leaves(golden.inputs);
  const torch::Tensor& documents = inputs.at("document_ids");
  const OperatorResult packed = compute(inputs, {}, documents),
                       from_state = compute(inputs, inputs.at("initial_state"), {});
  expect_within(golden.expected.at("out_documents"), packed.out, tolerance, "out_documents");
  if (golden.expected.contains("state_documents"))
    expect_within(golden.expected.at("state_documents"), packed.state, tolerance, "state_documents");
  expect_within(golden.expected.at("out_from_state"), from_state.out, tolerance, "out_from_state");
  expect_within(golden.expected.at("state_from_state"), from_state.state, tolerance, "state_from_state");
  weighted_backward(from_state, inputs);
  for (const auto& [key, gradient] : golden.expected)
    if (key.rfind("grad.", 0) == 0) expect_within(gradient, inputs.at(key.substr(5)).grad(), tolerance, key);
}

// The inputs that have a token dimension (1), over tokens [begin, begin + length).
inline TensorDict tokens_of(const TensorDict& inputs, std::int64_t begin, std::int64_t length) {
  const std::int64_t tokens = inputs.at("document_ids").size(1);
  TensorDict piece;
  for (const auto& [name, tensor] : inputs)
    piece.set(name, tensor.dim() > 1 && tensor.size(1) == tokens ? tensor.narrow(1, begin, length) : tensor);
  return piece;
}

// Expects that two pieces, with the state passed from one to the other, match a single piece. This includes
// gradients and packed documents.
inline void expect_pieces_equal(const std::string& name, const Operator& compute, std::int64_t first,
                                double tolerance = 1e-12) {
  SCOPED_TRACE(name + ", first piece " + std::to_string(first));
  const TensorDict inputs = OperatorCase(name).two_samples();
  const std::int64_t tokens = inputs.at("document_ids").size(1);
  const TensorDict whole = leaves(inputs), parts = leaves(inputs);
  const OperatorResult one = compute(whole, whole.at("initial_state"), {});
  const TensorDict begin = tokens_of(parts, 0, first), end = tokens_of(parts, first, tokens - first);
  const OperatorResult head = compute(begin, parts.at("initial_state"), {}), tail = compute(end, head.state, {});
  const OperatorResult both{torch::cat({head.out, tail.out}, 1), tail.state};
  expect_within(one.out, both.out, tolerance, "out");
  expect_within(one.state, both.state, tolerance, "state");
  weighted_backward(one, whole);
  weighted_backward(both, parts);
  expect_equal_gradients(whole, parts, tolerance);
}

// Expects that packed documents match separate ones. The first document continues the initial state.
inline void expect_documents_separate(const std::string& name, const Operator& compute, double tolerance = 1e-12) {
  SCOPED_TRACE(name);
  const TensorDict inputs = OperatorCase(name).two_samples();
  const std::int64_t tokens = inputs.at("document_ids").size(1);
  // A document of one token, one that begins where the last ended, and one that is longer than a chunk in some cases.
  const std::vector<std::int64_t> lengths{3, 1, tokens - 9, 5};
  std::vector<torch::Tensor> ids;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    ids.push_back(torch::full({inputs.at("document_ids").size(0), lengths[i]}, static_cast<std::int64_t>(i % 2)));
  const torch::Tensor documents = torch::cat(ids, 1);
  const TensorDict packed = leaves(inputs), alone = leaves(inputs);
  const OperatorResult one = compute(packed, packed.at("initial_state"), documents);
  std::vector<torch::Tensor> outs;
  torch::Tensor state = alone.at("initial_state");
  std::int64_t begin = 0;
  for (const auto length : lengths) {
    const OperatorResult piece = compute(tokens_of(alone, begin, length), begin == 0 ? state : torch::Tensor(), {});
    outs.push_back(piece.out);
    state = piece.state;
    begin += length;
  }
  expect_within(torch::cat(outs, 1), one.out, tolerance, "out");
  expect_within(state, one.state, tolerance, "state");
  weighted_backward(one, packed);
  weighted_backward({torch::cat(outs, 1), state}, alone);
  expect_equal_gradients(alone, packed, tolerance);
}

// Expects that `step`, called for one token at a time, matches `compute` for all tokens. Starts from a state,
// with documents that begin at different tokens in each sample.
inline void expect_steps_equal(const std::string& name, const Operator& compute, const Operator& step,
                               double tolerance = 1e-12) {
  SCOPED_TRACE(name);
  const TensorDict inputs = OperatorCase(name).two_samples();
  const std::int64_t tokens = inputs.at("document_ids").size(1);
  const torch::Tensor places = torch::arange(tokens).unsqueeze(0) + torch::tensor({{0}, {4}});
  const torch::Tensor documents = torch::floor_divide(places, 11);
  const TensorDict one = leaves(inputs), other = leaves(inputs);
  std::vector<torch::Tensor> outs;
  torch::Tensor state = other.at("initial_state");
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (token > 0) {
      const torch::Tensor continues = documents.select(1, token).eq(documents.select(1, token - 1));
      std::vector<std::int64_t> shape(state.dim(), 1);
      shape[0] = state.size(0);
      state = state * continues.view(shape);
    }
    const OperatorResult result = step(tokens_of(other, token, 1), state, {});
    outs.push_back(result.out);
    state = result.state;
  }
  const OperatorResult all = compute(one, one.at("initial_state"), documents);
  const OperatorResult steps{torch::cat(outs, 1), state};
  expect_within(steps.out, all.out, tolerance, "out");
  expect_within(steps.state, all.state, tolerance, "state");
  weighted_backward(all, one);
  weighted_backward(steps, other);
  expect_equal_gradients(other, one, tolerance);
}

// Expects that inputs in low precision give outputs of their type, which match the results of the same values
// in float64.
inline void expect_narrow_types(const std::string& name, const Operator& compute) {
  const TensorDict inputs = OperatorCase(name).two_samples();
  for (const auto& [type, tolerance] : {std::pair{torch::kFloat, 2e-5}, std::pair{torch::kBFloat16, 1e-2}}) {
    SCOPED_TRACE(name + " in " + torch::toString(type));
    const TensorDict narrow = leaves(inputs, type), wide = leaves(narrow);
    const OperatorResult actual = compute(narrow, {}, {}), exact = compute(wide, {}, {});
    EXPECT_EQ(actual.out.scalar_type(), type);
    expect_within(exact.out, actual.out, tolerance, "out");
    expect_within(exact.state, actual.state, type == torch::kFloat ? tolerance : 2e-2, "state");
    (actual.out * narrow.at("weight_out").detach()).sum().backward();
    (exact.out * wide.at("weight_out").detach()).sum().backward();
    for (const auto& [key, tensor] : narrow)
      if (tensor.grad().defined()) {
        EXPECT_EQ(tensor.grad().scalar_type(), type) << key;
        expect_within(wide.at(key).grad(), tensor.grad(), 2 * tolerance, "gradient of " + key);
      }
  }
}

}  // namespace gantry::testing
