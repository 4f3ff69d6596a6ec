#include "gantry/comm/reduce_kernels.h"

#include <algorithm>

#include "gantry/core/error.h"
#include "gantry/tensors/kernels/reduce_element.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

using kernels::combine;
using kernels::Reduction;

// The operation as the type that the kernels share with the device.
constexpr Reduction reduction_of(ReduceOp op) { return static_cast<Reduction>(op); }
static_assert(reduction_of(ReduceOp::kSum) == Reduction::kSum && reduction_of(ReduceOp::kMax) == Reduction::kMax &&
              reduction_of(ReduceOp::kMin) == Reduction::kMin);

// T: type of the stored elements. A: type of the computation.
template <class T, class A, Reduction kHow>
void reduce_typed(T* out, const void* const* inputs, int count, std::int64_t elements) {
  if constexpr (std::is_same_v<T, A>) {
    if (count == 2) {
      const T* a = static_cast<const T*>(inputs[0]);
      const T* b = static_cast<const T*>(inputs[1]);
      // The tensors are equal or disjoint, and the loop works element by element, so no iteration depends on
      // another.
#pragma GCC ivdep
      for (std::int64_t i = 0; i < elements; ++i) out[i] = combine<kHow, A>(a[i], b[i]);
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
      for (std::int64_t i = 0; i < n; ++i) sums[i] = combine<kHow, A>(sums[i], static_cast<A>(next[i]));
    }
    for (std::int64_t i = 0; i < n; ++i) out[begin + i] = static_cast<T>(sums[i]);
  }
}

template <class T, class A, Reduction kHow>
void extend_typed(A* running, bool begun, const void* const* inputs, int count, std::int64_t elements) {
  constexpr std::int64_t kBlock = 1024;
  for (std::int64_t begin = 0; begin < elements; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, elements - begin);
    A* sums = running + begin;
    for (int rank = 0; rank < count; ++rank) {
      const T* next = static_cast<const T*>(inputs[rank]) + begin;
      if (rank == 0 && !begun)
        for (std::int64_t i = 0; i < n; ++i) sums[i] = static_cast<A>(next[i]);
      else
#pragma GCC ivdep
        for (std::int64_t i = 0; i < n; ++i) sums[i] = combine<kHow, A>(sums[i], static_cast<A>(next[i]));
    }
  }
}

// Calls `body` with values of the two types: of the stored elements, and of the computation.
template <class Body>
void by_type(torch::ScalarType type, Body body) {
  switch (type) {
    case torch::kFloat32:
      return body(float{}, float{});
    case torch::kFloat64:
      return body(double{}, double{});
    case torch::kBFloat16:
      return body(c10::BFloat16{}, float{});
    case torch::kFloat16:
      return body(c10::Half{}, float{});
    case torch::kInt64:
      return body(std::int64_t{}, std::int64_t{});
    case torch::kInt32:
      return body(std::int32_t{}, std::int32_t{});
    case torch::kUInt8:
      return body(std::uint8_t{}, std::uint8_t{});
    default:
      throw UsageError({"reduction", "the tensors have the type " + dtype_name(type), "a floating or integer type",
                        "convert them first"});
  }
}

// Calls `body` with the operation as a compile-time constant.
template <class Body>
void by_op(ReduceOp op, Body body) {
  switch (op) {
    case ReduceOp::kSum:
      return body(std::integral_constant<Reduction, Reduction::kSum>());
    case ReduceOp::kMax:
      return body(std::integral_constant<Reduction, Reduction::kMax>());
    case ReduceOp::kMin:
      return body(std::integral_constant<Reduction, Reduction::kMin>());
  }
}

}  // namespace

void reduce_span(void* out, const void* const* inputs, int count, std::int64_t elements, torch::ScalarType type,
                 ReduceOp op) {
  by_type(type, [&]<class T, class A>(T, A) {
    by_op(op, [&](auto constant) { reduce_typed<T, A, constant()>(static_cast<T*>(out), inputs, count, elements); });
  });
}

std::int64_t sum_item(torch::ScalarType type) {
  std::int64_t item = 0;
  by_type(type, [&]<class T, class A>(T, A) { item = sizeof(A); });
  return item;
}

void extend_sum(void* running, bool begun, const void* const* inputs, int count, std::int64_t elements,
                torch::ScalarType type, ReduceOp op) {
  by_type(type, [&]<class T, class A>(T, A) {
    by_op(op, [&](auto constant) {
      extend_typed<T, A, constant()>(static_cast<A*>(running), begun, inputs, count, elements);
    });
  });
}

void round_sum(void* out, const void* running, std::int64_t elements, torch::ScalarType type) {
  by_type(type, [&]<class T, class A>(T, A) {
    const A* sums = static_cast<const A*>(running);
    T* values = static_cast<T*>(out);
    for (std::int64_t i = 0; i < elements; ++i) values[i] = static_cast<T>(sums[i]);
  });
}

}  // namespace gantry
