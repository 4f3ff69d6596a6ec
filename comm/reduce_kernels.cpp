#include "gantry/comm/reduce_kernels.h"

#include <algorithm>

#include "gantry/core/error.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

template <ReduceOp kOp, class A>
inline A combine(A a, A b) {
  if constexpr (kOp == ReduceOp::kSum) return a + b;
  if constexpr (kOp == ReduceOp::kMax) return a < b || b != b ? b : a;  // a NaN stays
  if constexpr (kOp == ReduceOp::kMin) return b < a || b != b ? b : a;
}

// T is stored, A is computed in.
template <class T, class A, ReduceOp kOp>
__attribute__((optimize("O3"))) void reduce_typed(T* out, const void* const* inputs, int count, std::int64_t elements) {
  if constexpr (std::is_same_v<T, A>) {
    if (count == 2) {
      const T* a = static_cast<const T*>(inputs[0]);
      const T* b = static_cast<const T*>(inputs[1]);
      // Equal or disjoint, element by element: no carried dependence.
#pragma GCC ivdep
      for (std::int64_t i = 0; i < elements; ++i) out[i] = combine<kOp, A>(a[i], b[i]);
      return;
    }
  }
  constexpr std::int64_t kBlock = 512;
  A sums[kBlock];
  for (std::int64_t begin = 0; begin < elements; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, elements - begin);
    const T* first = static_cast<const T*>(inputs[0]) + begin;
    for (std::int64_t i = 0; i < n; ++i) sums[i] = static_cast<A>(first[i]);
    for (int rank = 1; rank < count; ++rank) {
      const T* next = static_cast<const T*>(inputs[rank]) + begin;
      for (std::int64_t i = 0; i < n; ++i) sums[i] = combine<kOp, A>(sums[i], static_cast<A>(next[i]));
    }
    for (std::int64_t i = 0; i < n; ++i) out[begin + i] = static_cast<T>(sums[i]);
  }
}

template <class T, class A = T>
void reduce_by(void* out, const void* const* inputs, int count, std::int64_t elements, ReduceOp op) {
  T* typed = static_cast<T*>(out);
  switch (op) {
    case ReduceOp::kSum:
      return reduce_typed<T, A, ReduceOp::kSum>(typed, inputs, count, elements);
    case ReduceOp::kMax:
      return reduce_typed<T, A, ReduceOp::kMax>(typed, inputs, count, elements);
    case ReduceOp::kMin:
      return reduce_typed<T, A, ReduceOp::kMin>(typed, inputs, count, elements);
  }
}

}  // namespace

void reduce_span(void* out, const void* const* inputs, int count, std::int64_t elements, torch::ScalarType type,
                 ReduceOp op) {
  switch (type) {
    case torch::kFloat32:
      return reduce_by<float>(out, inputs, count, elements, op);
    case torch::kFloat64:
      return reduce_by<double>(out, inputs, count, elements, op);
    case torch::kBFloat16:
      return reduce_by<c10::BFloat16, float>(out, inputs, count, elements, op);
    case torch::kFloat16:
      return reduce_by<c10::Half, float>(out, inputs, count, elements, op);
    case torch::kInt64:
      return reduce_by<std::int64_t>(out, inputs, count, elements, op);
    case torch::kInt32:
      return reduce_by<std::int32_t>(out, inputs, count, elements, op);
    case torch::kUInt8:
      return reduce_by<std::uint8_t>(out, inputs, count, elements, op);
    default:
      throw UsageError(
          {"reduction", "of " + dtype_name(type) + " tensors", "a floating or integer type", "convert it first"});
  }
}

}  // namespace gantry
