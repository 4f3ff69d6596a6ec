// The loops of systems with a unit lower triangular matrix. Independent of LibTorch.
#pragma once

#include <cstdint>

namespace gantry::kernels {

// Replaces r [size, columns] by the solution; a [size, size].
void solve_rows(const float* a, float* r, std::int64_t size, std::int64_t columns, bool transposed);
void solve_rows(const double* a, double* r, std::int64_t size, std::int64_t columns, bool transposed);

}  // namespace gantry::kernels
