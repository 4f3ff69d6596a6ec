// Reduces one element of several tensors, one term after the other, for host and device. Reductions over
// ranks use it. T is the type of the terms, and A the type of the arithmetic. The result is rounded to T
// once.
#pragma once

#include <cstdint>

#include "gantry/tensors/kernels/host_device.h"

namespace gantry::kernels {

enum class Reduction : std::uint8_t { kSum, kMax, kMin };

// NaN if one of the two is NaN.
template <Reduction kHow, class A>
GANTRY_HOST_DEVICE A combine(A a, A b) {
  if constexpr (kHow == Reduction::kSum) return a + b;
  if constexpr (kHow == Reduction::kMax) return a < b || b != b ? b : a;
  if constexpr (kHow == Reduction::kMin) return b < a || b != b ? b : a;
}

// A kernel's argument, so that nothing is copied to the device. More terms than kMost need several launches.
struct Terms {
  static constexpr int kMost = 64;
  const void* memory[kMost] = {};
  int count = 0;
};

// Reduces element i of the terms, in their order. `before`: the result of earlier terms; null: there are
// none.
template <Reduction kHow, class A, class T>
GANTRY_HOST_DEVICE A reduce_element(const Terms& terms, const A* before, std::int64_t i) {
  const auto value = [&](int term) { return static_cast<A>(static_cast<const T*>(terms.memory[term])[i]); };
  A result = before ? combine<kHow>(before[i], value(0)) : value(0);
  for (int term = 1; term < terms.count; ++term) result = combine<kHow>(result, value(term));
  return result;
}

}  // namespace gantry::kernels
