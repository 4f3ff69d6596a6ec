// Philox4x32-10 and the random numbers that are made of its words, for host and device. Normal numbers need a
// logarithm and a cosine, which the mathematics libraries of hosts and devices round differently. So both are
// computed by IEEE operations only, with fdlibm's polynomials (Sun Microsystems, 1993), and are compiled
// without fused multiplications. The numbers of hosts and devices are therefore bitwise identical.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "gantry/tensors/kernels/host_device.h"

namespace gantry::kernels {

inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

GANTRY_HOST_DEVICE void philox_round(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c, std::uint32_t& d,
                                     std::uint32_t key0, std::uint32_t key1) {
  const std::uint64_t product0 = static_cast<std::uint64_t>(kPhiloxMultiplier0) * a;
  const std::uint64_t product1 = static_cast<std::uint64_t>(kPhiloxMultiplier1) * c;
  a = static_cast<std::uint32_t>(product1 >> 32) ^ b ^ key0;
  b = static_cast<std::uint32_t>(product1);
  c = static_cast<std::uint32_t>(product0 >> 32) ^ d ^ key1;
  d = static_cast<std::uint32_t>(product0);
}

struct PhiloxBlock {
  std::uint32_t word[4];
};

// The counter's upper half is the stream, its lower half the block; the key is the seed.
GANTRY_HOST_DEVICE PhiloxBlock philox_block(std::uint64_t seed, std::uint64_t stream, std::uint64_t block) {
  auto a = static_cast<std::uint32_t>(block), b = static_cast<std::uint32_t>(block >> 32);
  auto c = static_cast<std::uint32_t>(stream), d = static_cast<std::uint32_t>(stream >> 32);
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    philox_round(a, b, c, d, key0, key1);
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return {{a, b, c, d}};
}

// Uniform in [0, 1), with 53 random bits.
GANTRY_HOST_DEVICE double unit_of(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((static_cast<std::uint64_t>(high) << 21) | (low >> 11)) * 0x1p-53;
}

// The natural logarithm of a normal number x in (0, 1].
GANTRY_HOST_DEVICE double portable_log(double x) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  // x = 2^k (1 + f), with 1 + f between sqrt(1/2) and sqrt(2).
  constexpr std::uint64_t kRootHalf = 0x3FE6A09E667F3BCD;  // the bits of sqrt(1/2)
  const std::int64_t k = static_cast<std::int64_t>(bits - kRootHalf) >> 52;
  bits -= static_cast<std::uint64_t>(k) << 52;
  double full = 0;
  std::memcpy(&full, &bits, sizeof full);
  const double f = full - 1, s = f / (2 + f), z = s * s, w = z * z;
  const double even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double odd =
      z * (6.666666666666735130e-01 +
           w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const double half = 0.5 * f * f, power = static_cast<double>(k);
  return power * 6.93147180369123816490e-01 -
         ((half - (s * (half + (even + odd)) + power * 1.90821492927058770002e-10)) - f);
}

// The cosine of t turns, t in [0, 1).
GANTRY_HOST_DEVICE double portable_cos_of_turns(double t) {
  const double quarters = 4 * t + 0.5;
  const int quarter = static_cast<int>(quarters);
  const double x = (t - 0.25 * quarter) * 6.283185307179586477;  // at most an eighth of a turn; the difference is exact
  const double z = x * x;
  const double cosine_rest = z * (4.16666666666666019037e-02 +
                                  z * (-1.38888888888741095749e-03 +
                                       z * (2.48015872894767294178e-05 +
                                            z * (-2.75573143513906633035e-07 +
                                                 z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
  const double half = 0.5 * z, w = 1 - half, cosine = w + (((1 - w) - half) + z * cosine_rest);
  const double sine_rest =
      8.33333333332248946124e-03 +
      z * (-1.98412698298579493134e-04 +
           z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)));
  const double sine = x + z * x * (-1.66666666666666324348e-01 + z * sine_rest);
  const double value = quarter % 2 == 0 ? cosine : sine;
  return quarter == 1 || quarter == 2 ? -value : value;
}

// Standard normal by Box-Muller, from two uniform numbers of 53 bits.
GANTRY_HOST_DEVICE double normal_of(const std::uint32_t* words) {
  const double radius = std::sqrt(-2 * portable_log(1 - unit_of(words[0], words[1])));
  return radius * portable_cos_of_turns(unit_of(words[2], words[3]));
}

}  // namespace gantry::kernels
