// The MXFP4 format of weights (OCP Microscaling 1.0), which gpt-oss's files use: blocks of 32 numbers of four
// bits with a scale of eight bits each.
#pragma once

#include <memory>
#include <string>

#include <torch/types.h>

#include "gantry/checkpoint/encoded_tensor.h"

namespace gantry {

inline constexpr const char *kMxfp4Blocks = "_blocks", *kMxfp4Scales = "_scales";  // suffixes of its name

// The codes [..., row] from blocks [..., blocks of a row, 16] and scales [..., blocks of a row], both uint8.
// A byte contains two numbers, the first in its low half. A scale of 255 represents NaN.
CodedWeight mxfp4_codes(const torch::Tensor& blocks, const torch::Tensor& scales);

// A stack of experts' weights [experts, in, out], which files store transposed: blocks [experts, out, blocks
// of a row, 16]. One expert is decoded at a time.
std::unique_ptr<EncodedTensor> mxfp4_tensor(TensorPlace blocks, TensorPlace scales);

}  // namespace gantry
