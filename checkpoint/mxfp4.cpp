#include "gantry/checkpoint/mxfp4.h"

#include <array>
#include <cmath>

#include "gantry/tensors/libtorch.h"

namespace gantry {

torch::Tensor mxfp4_values(const torch::Tensor& blocks, const torch::Tensor& scales) {
  // By bits: sign, two of exponent, one of mantissa.
  constexpr std::array<float, 16> kNumbers = {0, .5F, 1, 1.5F, 2, 3, 4, 6, -0.F, -.5F, -1, -1.5F, -2, -3, -4, -6};
  const torch::Tensor packed = blocks.contiguous(), exponents = scales.contiguous();
  std::vector<std::int64_t> shape(exponents.sizes().begin(), exponents.sizes().end());
  shape.back() *= kMxfp4Block;
  torch::Tensor values = torch::empty(shape, torch::kFloat32);
  const auto* byte = packed.const_data_ptr<std::uint8_t>();
  const auto* exponent = exponents.const_data_ptr<std::uint8_t>();
  auto* value = values.data_ptr<float>();
  for (std::int64_t block = 0; block < exponents.numel(); ++block) {
    const float scale = exponent[block] == 255 ? NAN : std::ldexp(1.0F, exponent[block] - 127);
    for (int i = 0; i < kMxfp4Block / 2; ++i, ++byte) {
      *value++ = kNumbers[*byte & 15] * scale;
      *value++ = kNumbers[*byte >> 4] * scale;
    }
  }
  return values;
}

}  // namespace gantry
