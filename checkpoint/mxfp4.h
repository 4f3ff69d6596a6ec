// Weights in blocks of 32 four-bit floats with one scale (OCP Microscaling Formats 1.0, MXFP4), as gpt-oss's files have
// its experts.
#pragma once

#include "gantry/tensors/tensor.h"

namespace gantry {

// What files have in place of a weight NAME [experts, in, out].
inline constexpr const char* kMxfp4Blocks = "_blocks";  // uint8 [experts, out, in / 32, 16]
inline constexpr const char* kMxfp4Scales = "_scales";  // uint8 [experts, out, in / 32]
inline constexpr std::int64_t kMxfp4Block = 32;

// Blocks [..., n, 16] of two numbers a byte, the lower half first, and their scales [..., n] -> float32 [..., 32 n]:
// every number times 2^(scale - 127).
torch::Tensor mxfp4_values(const torch::Tensor& blocks, const torch::Tensor& scales);

}  // namespace gantry
