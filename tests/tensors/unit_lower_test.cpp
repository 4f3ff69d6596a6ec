// Linear systems with unit lower triangular matrices, compared with LibTorch's solution.
#include "gantry/tensors/kernels/unit_lower.h"

#include <gtest/gtest.h>

#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

// Numbers on and above the diagonal are not read.
TEST(UnitLower, SolvesAsLibTorchDoes) {
  torch::manual_seed(3);
  for (const auto& [size, columns] : {std::pair{1, 3}, std::pair{16, 64}, std::pair{37, 150}})
    for (const bool transposed : {false, true}) {
      SCOPED_TRACE(std::to_string(size) + " rows, " + std::to_string(columns) + " columns");
      const torch::Tensor a = torch::randn({2, 3, size, size}, torch::kFloat64) / size;
      const torch::Tensor r = torch::randn({2, 3, size, columns}, torch::kFloat64);
      const torch::Tensor expected =
          torch::linalg_solve_triangular(transposed ? a.mT() : a, r, transposed, /*left=*/true, /*unitriangular=*/true);
      EXPECT_TRUE(torch::allclose(kernels::solve_unit_lower(a, r, transposed), expected, 1e-12, 1e-12));
    }
}

}  // namespace
}  // namespace gantry::testing
