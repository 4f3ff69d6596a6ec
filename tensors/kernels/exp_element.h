// The exponential function for host and device, made of IEEE's operations alone, so that compilers vectorise loops of
// it. The polynomial for float is that of Cephes (Moshier, 1992), and that for double is Taylor's. The relative error
// is below one unit in the last place.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "gantry/tensors/kernels/host_device.h"

namespace gantry::kernels {

// Zero below -87, infinity above 88, NaN for NaN.
GANTRY_HOST_DEVICE float exp_element(float x) {
  constexpr float kSmallest = -87.0F, kLargest = 88.0F, kInverseLog2 = 1.44269504F;
  constexpr float kLog2Head = 0.693359375F, kLog2Tail = -2.12194440e-4F;
  constexpr float kShift = 12582912.0F;  // 1.5 * 2^23: a sum with it has the rounded term in its lowest bits
  const float shifted = x * kInverseLog2 + kShift, power = shifted - kShift;
  const float rest = (x - power * kLog2Head) - power * kLog2Tail;
  float sum = 1.9875691500e-4F;
  sum = sum * rest + 1.3981999507e-3F;
  sum = sum * rest + 8.3334519073e-3F;
  sum = sum * rest + 4.1665795894e-2F;
  sum = sum * rest + 1.6666665459e-1F;
  sum = sum * rest + 5.0000001201e-1F;
  sum = sum * (rest * rest) + rest + 1.0F;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + 0x3F800000U;  // 2^power
  float scale = 0;
  std::memcpy(&scale, &bits, sizeof scale);
  const float finite = x < kSmallest ? 0.0F : sum * scale;
  return x > kLargest ? static_cast<float>(INFINITY) : finite;
}

// Zero below -708, infinity above 709, NaN for NaN.
GANTRY_HOST_DEVICE double exp_element(double x) {
  constexpr double kSmallest = -708.0, kLargest = 709.0, kInverseLog2 = 1.4426950408889634;
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
  sum = sum * (rest * rest) + rest + 1.0;
  std::uint64_t bits = 0;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 52) + 0x3FF0000000000000U;  // 2^power
  double scale = 0;
  std::memcpy(&scale, &bits, sizeof scale);
  const double finite = x < kSmallest ? 0.0 : sum * scale;
  return x > kLargest ? static_cast<double>(INFINITY) : finite;
}

}  // namespace gantry::kernels
