#include "gantry/tensors/kernels/unit_lower.h"

#include <ATen/Parallel.h>

#include "gantry/tensors/kernels/unit_lower_loops.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::kernels {

torch::Tensor solve_unit_lower(const torch::Tensor& a, const torch::Tensor& r, bool transposed) {
  const torch::NoGradGuard no_grad;
  if (!a.is_cpu())
    return torch::linalg_solve_triangular(transposed ? a.mT() : a, r, /*upper=*/transposed, /*left=*/true,
                                          /*unitriangular=*/true);
  const torch::Tensor close = a.contiguous();
  torch::Tensor solved = r.clone(at::MemoryFormat::Contiguous);
  const std::int64_t size = r.size(-2), columns = r.size(-1);
  if (solved.numel() == 0) return solved;
  AT_DISPATCH_FLOATING_TYPES(r.scalar_type(), "solve_unit_lower", [&] {
    const auto* const matrices = close.const_data_ptr<scalar_t>();
    auto* const rows = solved.data_ptr<scalar_t>();
    at::parallel_for(0, solved.numel() / (size * columns), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        solve_rows(matrices + i * size * size, rows + i * size * columns, size, columns, transposed);
    });
  });
  return solved;
}

}  // namespace gantry::kernels
