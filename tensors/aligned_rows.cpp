#include "gantry/tensors/aligned_rows.h"

#include <torch/torch.h>

namespace gantry {

torch::Tensor empty_aligned_rows(std::int64_t rows, std::int64_t columns, const torch::TensorOptions& options) {
  constexpr std::int64_t kBytes = 16;
  const auto multiple = kBytes / static_cast<std::int64_t>(options.dtype().itemsize());
  const std::int64_t stride = options.device().is_cpu() ? columns : (columns + multiple - 1) / multiple * multiple;
  return torch::empty({rows, stride}, options).narrow(1, 0, columns);
}

}  // namespace gantry
