// Rows of numbers in 8 bits, with a scale for each block of neighbours: the largest magnitude in the block. A code is
// the index of the table entry that is nearest to number / scale (Dettmers et al., 8-bit optimizers via block-wise
// quantization, arXiv 2110.02861).
#pragma once

#include "gantry/tensors/tensor.h"

namespace gantry {

struct BlockCodes {
  torch::Tensor codes;   // uint8 [rows, columns]: indices of table entries
  torch::Tensor scales;  // [rows, blocks of a row]; the last block of a row may be short
};

// `values`: [rows, columns] of a floating-point type, which the scales get. `table`: at most 256 values from -1 to 1 in
// ascending order. A block of zeros has the scale 0.
BlockCodes encode_blocks(const torch::Tensor& values, std::int64_t block, const torch::Tensor& table);
// Returns the values, in the type of the scales.
torch::Tensor decode_blocks(const BlockCodes& coded, std::int64_t block, const torch::Tensor& table);

}  // namespace gantry
