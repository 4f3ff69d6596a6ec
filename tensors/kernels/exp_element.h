// The exponential function for host and device, made of IEEE's operations alone, so that compilers vectorise loops of
// it. The polynomial for float is that of Cephes (Moshier, 1992), and that for double is Taylor's. The relative error
// is below one unit in the last place.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "gantry/tensors/kernels/host_device.h"

namespace gantry::kernels {

// e^x = scale (1 + rest), in which scale is a power of two and 1 + rest is between sqrt(1/2) and sqrt(2).
template <class A>
struct ExpParts {
  A scale, rest;
};

// x: from -87 to 88.
GANTRY_HOST_DEVICE ExpParts<float> exp_parts(float x) {
  constexpr float kInverseLog2 = 1.44269504F, kLog2Head = 0.693359375F, kLog2Tail = -2.12194440e-4F;
  constexpr float kShift = 12582912.0F;  // 1.5 * 2^23: a sum with it has the rounded term in its lowest bits
  const float shifted = x * kInverseLog2 + kShift, power = shifted - kShift;
  const float rest = (x - power * kLog2Head) - power * kLog2Tail;
  float sum = 1.9875691500e-4F;
  sum = sum * rest + 1.3981999507e-3F;
  sum = sum * rest + 8.3334519073e-3F;
  sum = sum * rest + 4.1665795894e-2F;
  sum = sum * rest + 1.6666665459e-1F;
  sum = sum * rest + 5.0000001201e-1F;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + 0x3F800000U;  // 2^power
  float scale = 0;
  std::memcpy(&scale, &bits, sizeof scale);
  return {scale, sum * (rest * rest) + rest};
}

// x: from -708 to 709.
GANTRY_HOST_DEVICE ExpParts<double> exp_parts(double x) {
  constexpr double kInverseLog2 = 1.4426950408889634;
  constexpr double kLog2Head = 6.93147180369123816490e-01, kLog2Tail = 1.90821492927058770002e-10;
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52
  const double shifted = x * kInverseLog2 + kShift, power = shifted - kShift;
  const double rest = (x - power * kLog2Head) - power * kLog2Tail;
  double sum = 1.0 / 6227020800;
  sum = sum * rest + 1.0 / 479001600;
  sum = sum * rest + 1.0 / 39916800;
  sum = sum * rest + 1.0 / 3628800;
  sum = sum * rest + 1.0 / 362880;
  sum = sum * rest + 1.0 / 40320;
  sum = sum * rest + 1.0 / 5040;
  sum = sum * rest + 1.0 / 720;
  sum = sum * rest + 1.0 / 120;
  sum = sum * rest + 1.0 / 24;
  sum = sum * rest + 1.0 / 6;
  sum = sum * rest + 1.0 / 2;
  std::uint64_t bits = 0;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 52) + 0x3FF0000000000000U;  // 2^power
  double scale = 0;
  std::memcpy(&scale, &bits, sizeof scale);
  return {scale, sum * (rest * rest) + rest};
}

// Arguments of exp_parts().
template <class A>
struct ExpRange {
  static constexpr A kSmallest = sizeof(A) == sizeof(float) ? A(-87) : A(-708);
  static constexpr A kLargest = sizeof(A) == sizeof(float) ? A(88) : A(709);
};

// Zero below the range, infinity above it, NaN for NaN.
template <class A>
GANTRY_HOST_DEVICE A exp_element(A x) {
  const ExpParts<A> parts = exp_parts(x);
  const A finite = x < ExpRange<A>::kSmallest ? A(0) : (parts.rest + A(1)) * parts.scale;
  return x > ExpRange<A>::kLargest ? static_cast<A>(INFINITY) : finite;
}

// e^x - 1 for x of at most 0, exact near 0.
template <class A>
GANTRY_HOST_DEVICE A expm1_element(A x) {
  const ExpParts<A> parts = exp_parts(x);
  return x < ExpRange<A>::kSmallest ? A(-1) : parts.rest * parts.scale + (parts.scale - A(1));
}

template <class A>
GANTRY_HOST_DEVICE A sigmoid_element(A x) {
  return A(1) / (A(1) + exp_element(-x));
}

}  // namespace gantry::kernels
