// Memory for matrices that devices multiply.
#pragma once

#include <cstdint>
#include <vector>

#include "gantry/core/shard_spec.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// Returns an uninitialized tensor [rows, columns] with adjacent columns. On devices, each row of a type of at most four
// bytes starts at a multiple of 16 bytes, so its stride can be larger than `columns`. The fast kernels of cuBLAS need
// this: with a vocabulary of an odd size, such as 50257, contiguous rows are not aligned. Otherwise the tensor is
// contiguous.
torch::Tensor empty_aligned_rows(std::int64_t rows, std::int64_t columns, const torch::TensorOptions& options);

// Returns the ranges of columns in which a matrix is multiplied. For half precisions on devices, a large number of
// columns is divided into a multiple of 16 bytes and the rest. Otherwise there is one range. Kernels of cuBLAS read
// element by element if the inner or the contiguous dimension of a product has an odd size.
std::vector<Range> product_parts(std::int64_t columns, const torch::TensorOptions& options);

}  // namespace gantry
