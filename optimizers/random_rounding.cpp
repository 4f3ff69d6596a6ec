#include "gantry/optimizers/random_rounding.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr std::int64_t kLow32 = 0xFFFFFFFF, kLow16 = 0xFFFF;

torch::Tensor float_bits(const torch::Tensor& values) {
  return values.to(torch::kFloat32).contiguous().view(torch::kInt32);
}

// Returns the sign, the exponent and the first seven bits of the mantissa of each value: int64 from 0 to 65535.
torch::Tensor leading_bits(const torch::Tensor& values) {
  return float_bits(values).to(torch::kInt64).bitwise_right_shift_(16).bitwise_and_(kLow16);
}

// Mixes the bits of 32-bit numbers in place by multiplications and shifts, as MurmurHash3's finalizer. The factors are
// below 2^31, so no product leaves int64.
void mix(torch::Tensor& numbers) {
  const auto shift = [&](int bits) { numbers.bitwise_xor_(numbers.bitwise_right_shift(bits)); };
  numbers.bitwise_and_(kLow32);
  shift(16);
  numbers.mul_(std::int64_t{0x7FEB352D}).bitwise_and_(kLow32);
  shift(15);
  numbers.mul_(std::int64_t{0x45D9F3B5}).bitwise_and_(kLow32);
  shift(16);
}

}  // namespace

torch::Tensor element_hashes(const torch::Tensor& a, const torch::Tensor& b, std::uint32_t seed) {
  torch::Tensor hashes = leading_bits(a).mul_(kLow16 + 1).add_(leading_bits(b)).add_(std::int64_t{seed});
  mix(hashes);
  return hashes;
}

torch::Tensor randomly_rounded(const torch::Tensor& values, const torch::Tensor& hashes) {
  torch::Tensor random = leading_bits(values).add_(hashes);
  mix(random);
  // The bits of a float grow with its absolute value, so a carry out of the dropped bits rounds away from zero.
  const torch::Tensor bits = float_bits(values).add(random.bitwise_and_(kLow16).to(torch::kInt32));
  return bits.bitwise_and_(~kLow16).view(torch::kFloat32).to(torch::kBFloat16);
}

}  // namespace gantry
