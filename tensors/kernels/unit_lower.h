// Systems with a lower triangular matrix whose diagonal is 1, many small ones at a time. On the CPU by loops that keep
// a row of the solution in registers: LibTorch calls a routine for large matrices. On devices by LibTorch.
#pragma once

#include "gantry/tensors/tensor.h"

namespace gantry::kernels {

// X with A X = R, or with A^T X = R if `transposed`. A [..., size, size], of which only numbers below the diagonal are
// read; R [..., size, columns] of its type, float32 or float64. No graph is made.
torch::Tensor solve_unit_lower(const torch::Tensor& a, const torch::Tensor& r, bool transposed);

}  // namespace gantry::kernels
