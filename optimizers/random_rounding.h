// Stochastic rounding to bfloat16 without a random number generator.
#pragma once

#include <cstdint>

#include "gantry/tensors/tensor.h"

namespace gantry {

// Returns `values` in bfloat16, each rounded up or down with the probability that makes the expected value exact.
// Numbers of bfloat16 are unchanged. The random bits are a hash of `seed`, of the leading bits of the value, and of
// those of the element of `source` at the same place (same shape and device). So equal inputs have equal results on
// every device, and values that differ only in trailing bits, such as sums in another order, are rounded by the same
// random bits. `values` and `source` are float32, float64 or bfloat16.
torch::Tensor randomly_rounded(const torch::Tensor& values, const torch::Tensor& source, std::uint32_t seed);

}  // namespace gantry
