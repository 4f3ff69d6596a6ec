#include "gantry/optimizers/random_rounding.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr std::int64_t kLow32 = 0xFFFFFFFF, kLow16 = 0xFFFF;

// Returns the sign, the exponent and the first seven bits of the mantissa of each value: int64 from 0 to 65535.
torch::Tensor leading_bits(const torch::Tensor& values) {
  return values.to(torch::kFloat32)
      .contiguous()
      .view(torch::kInt32)
      .to(torch::kInt64)
      .bitwise_right_shift_(16)
      .bitwise_and_(kLow16);
}

void mix(torch::Tensor& hash, int shift) { hash.bitwise_xor_(hash.bitwise_right_shift(shift)); }

// Returns 16 random bits for each 32-bit number of `hash`, which is overwritten: multiplications and shifts in the form
// of MurmurHash3's finalizer. The factors are below 2^31, so no product leaves int64.
torch::Tensor random_bits(torch::Tensor hash, std::uint32_t seed) {
  hash.add_(static_cast<std::int64_t>(seed)).bitwise_and_(kLow32);
  mix(hash, 16);
  hash.mul_(std::int64_t{0x7FEB352D}).bitwise_and_(kLow32);
  mix(hash, 15);
  hash.mul_(std::int64_t{0x45D9F3B5}).bitwise_and_(kLow32);
  mix(hash, 16);
  return hash.bitwise_and_(kLow16);
}

}  // namespace

torch::Tensor randomly_rounded(const torch::Tensor& values, const torch::Tensor& source, std::uint32_t seed) {
  const torch::Tensor hash = leading_bits(values).mul_(kLow16 + 1).add_(leading_bits(source));
  // The bits of a float grow with its absolute value, so a carry out of the dropped bits rounds away from zero.
  const torch::Tensor bits = values.to(torch::kFloat32).contiguous().view(torch::kInt32);
  const torch::Tensor rounded = bits.add(random_bits(hash, seed).to(torch::kInt32)).bitwise_and_(~kLow16);
  return rounded.view(torch::kFloat32).to(torch::kBFloat16);
}

}  // namespace gantry
