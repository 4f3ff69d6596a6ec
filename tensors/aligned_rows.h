// Memory of matrices whose rows a device's matrix multiplication units can read.
#pragma once

#include <cstdint>

#include "gantry/tensors/tensor.h"

namespace gantry {

// Returns an uninitialized tensor [rows, columns] whose columns are adjacent. On devices each row of a type of at most
// four bytes starts at a multiple of 16 bytes, so the row stride can be larger than `columns`: cuBLAS has its fast
// kernels for such matrices only, and vocabularies of odd sizes (50257) would miss them. Otherwise the tensor is
// contiguous.
torch::Tensor empty_aligned_rows(std::int64_t rows, std::int64_t columns, const torch::TensorOptions& options);

}  // namespace gantry
