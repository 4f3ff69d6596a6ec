#include "gantry/tensors/kernels/unit_lower_loops.h"

#include <type_traits>

#include "gantry/tensors/kernels/host_loops.h"

namespace gantry::kernels {
namespace {

// Columns side by side. The compiler keeps them in registers, because the number is a constant.
using SolvedColumns = std::integral_constant<int, 64>;

// Substitution, forward or backward, in `width` columns.
template <bool kTransposed, class A, class Width>
GANTRY_IN_LOOPS void solve_columns(const A* a, A* r, std::int64_t size, std::int64_t columns, Width width) {
  A row[SolvedColumns::value];
  for (std::int64_t done = 0; done < size; ++done) {
    const std::int64_t i = kTransposed ? size - 1 - done : done;
    for (int column = 0; column < width; ++column) row[column] = r[i * columns + column];
    for (std::int64_t k = 0; k < done; ++k) {
      const std::int64_t j = kTransposed ? size - 1 - k : k;
      const A factor = kTransposed ? a[j * size + i] : a[i * size + j];
      const A* const solved = r + j * columns;
      for (int column = 0; column < width; ++column) row[column] -= factor * solved[column];
    }
    for (int column = 0; column < width; ++column) r[i * columns + column] = row[column];
  }
}

template <bool kTransposed, class A>
GANTRY_IN_LOOPS void solve_all_columns(const A* a, A* r, std::int64_t size, std::int64_t columns) {
  constexpr SolvedColumns kAtOnce;
  std::int64_t first = 0;
  for (; first + kAtOnce <= columns; first += kAtOnce) solve_columns<kTransposed>(a, r + first, size, columns, kAtOnce);
  if (first < columns) solve_columns<kTransposed>(a, r + first, size, columns, static_cast<int>(columns - first));
}

}  // namespace

GANTRY_HOST_LOOPS void solve_rows(const float* a, float* r, std::int64_t size, std::int64_t columns, bool transposed) {
  transposed ? solve_all_columns<true>(a, r, size, columns) : solve_all_columns<false>(a, r, size, columns);
}
GANTRY_HOST_LOOPS void solve_rows(const double* a, double* r, std::int64_t size, std::int64_t columns,
                                  bool transposed) {
  transposed ? solve_all_columns<true>(a, r, size, columns) : solve_all_columns<false>(a, r, size, columns);
}

}  // namespace gantry::kernels
