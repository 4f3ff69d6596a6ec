// Stochastic rounding to bfloat16 without a random number generator.
#pragma once

#include <cstdint>

#include "gantry/tensors/tensor.h"

namespace gantry {

// Returns a hash of `seed` and of the leading 16 bits of each element of `a` and `b`: int64 from 0 to 2^32 - 1. `a` and
// `b` are float32, float64 or bfloat16, of the same shape and device. Equal inputs have equal hashes on every device,
// and so have almost all elements that differ only in trailing bits, such as sums in another order.
torch::Tensor element_hashes(const torch::Tensor& a, const torch::Tensor& b, std::uint32_t seed);

// Returns `values` in bfloat16, each rounded up or down with the probability that makes the expected value exact.
// Numbers of bfloat16 are unchanged. The random bits are a hash of `hashes` and of the leading 16 bits of each value.
torch::Tensor randomly_rounded(const torch::Tensor& values, const torch::Tensor& hashes);

}  // namespace gantry
