// Reductions over ranks in a device kernel. Both the kernel's threads and the CPU version give the result of
// adding term by term in the accumulation type (float32 for half precisions).
#include "gantry/comm/device_sum.h"

#include <gtest/gtest.h>
#include <limits>

#include "gantry/core/error.h"
#include "gantry/tensors/kernels/reduce_element.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using kernels::Reduction;
using kernels::Terms;

std::vector<torch::Tensor> terms_of(int count, torch::ScalarType type) {
  std::vector<torch::Tensor> terms;
  for (int term = 0; term < count; ++term)
    terms.push_back(((torch::arange(1000, torch::kFloat64) * (0.7 + 0.1 * term)).sin() * 100).abs().to(type));
  return terms;
}

torch::Tensor expected_of(const std::vector<torch::Tensor>& terms, ReduceOp op, torch::ScalarType wide) {
  torch::Tensor result = terms[0].to(wide);
  for (std::size_t term = 1; term < terms.size(); ++term) {
    const torch::Tensor next = terms[term].to(wide);
    result = op == ReduceOp::kSum ? result + next : op == ReduceOp::kMax ? result.maximum(next) : result.minimum(next);
  }
  return result.to(terms[0].scalar_type());
}

// Computes the elements like the kernel's threads, with at most Terms::kMost terms in each launch.
template <Reduction kHow, class A, class T>
torch::Tensor by_threads(const std::vector<torch::Tensor>& terms) {
  const std::int64_t elements = terms[0].numel();
  torch::Tensor out = torch::empty_like(terms[0]);
  std::vector<A> running(static_cast<std::size_t>(elements));
  const int count = static_cast<int>(terms.size());
  for (int begin = 0; begin < count; begin += Terms::kMost) {
    Terms some;
    for (int term = begin; term < std::min(count, begin + Terms::kMost); ++term)
      some.memory[some.count++] = terms[static_cast<std::size_t>(term)].const_data_ptr();
    for (std::int64_t i = elements; i-- > 0;)
      running[i] = kernels::reduce_element<kHow, A, T>(some, begin > 0 ? running.data() : nullptr, i);
  }
  for (std::int64_t i = 0; i < elements; ++i) out.data_ptr<T>()[i] = static_cast<T>(running[i]);
  return out;
}

template <class A, class T>
void expect_sums(torch::ScalarType type, torch::ScalarType wide) {
  for (const int count : {1, 2, 5, Terms::kMost, 2 * Terms::kMost + 3}) {
    const auto terms = terms_of(count, type);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
      const torch::Tensor expected = expected_of(terms, op, wide);
      torch::Tensor out = torch::empty_like(terms[0]);
      reduce_by_rank(out, terms, op);
      EXPECT_TRUE(torch::equal(out, expected)) << type << " " << count << " " << name_of(op);
      // The output uses the memory of the last term.
      std::vector<torch::Tensor> shared = terms;
      shared.back() = terms.back().clone();
      reduce_by_rank(shared.back(), shared, op);
      EXPECT_TRUE(torch::equal(shared.back(), expected)) << type << " " << count << " " << name_of(op);
      const torch::Tensor threads = op == ReduceOp::kSum   ? by_threads<Reduction::kSum, A, T>(terms)
                                    : op == ReduceOp::kMax ? by_threads<Reduction::kMax, A, T>(terms)
                                                           : by_threads<Reduction::kMin, A, T>(terms);
      EXPECT_TRUE(torch::equal(threads, expected)) << type << " " << count << " " << name_of(op);
    }
  }
}

TEST(DeviceSum, HasTheBitsOfTermsThatAreTakenInTurn) {
  expect_sums<float, float>(torch::kFloat32, torch::kFloat32);
  expect_sums<double, double>(torch::kFloat64, torch::kFloat64);
  expect_sums<float, at::BFloat16>(torch::kBFloat16, torch::kFloat32);
  expect_sums<float, at::Half>(torch::kFloat16, torch::kFloat32);
  expect_sums<std::int64_t, std::int64_t>(torch::kInt64, torch::kInt64);
  expect_sums<std::int32_t, std::int32_t>(torch::kInt32, torch::kInt32);
  expect_sums<std::uint8_t, std::uint8_t>(torch::kUInt8, torch::kUInt8);
}

TEST(DeviceSum, KeepsWhatIsNoNumber) {
  const float none = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin})
    for (const auto& terms : {std::vector{torch::tensor({none}), torch::tensor({1.0f})},
                              std::vector{torch::tensor({1.0f}), torch::tensor({none})}}) {
      torch::Tensor out = torch::zeros({1});
      reduce_by_rank(out, terms, op);
      EXPECT_TRUE(out.isnan().item<bool>()) << name_of(op);
    }
}

TEST(DeviceSum, RefusesTermsThatDoNotFit) {
  torch::Tensor out = torch::zeros({4});
  EXPECT_THROW(reduce_by_rank(out, {}, ReduceOp::kSum), InternalError);
  EXPECT_THROW(reduce_by_rank(out, {torch::ones({4}), torch::ones({3})}, ReduceOp::kSum), InternalError);
  EXPECT_THROW(reduce_by_rank(out, {torch::ones({4}, torch::kFloat64)}, ReduceOp::kSum), InternalError);
  EXPECT_THROW(reduce_by_rank(out, {torch::ones({4, 2}).select(1, 0)}, ReduceOp::kSum), InternalError);
}

}  // namespace
}  // namespace gantry
