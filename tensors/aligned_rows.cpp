#include "gantry/tensors/aligned_rows.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {

namespace {

constexpr std::int64_t kBytes = 16;

}  // namespace

torch::Tensor empty_aligned_rows(std::int64_t rows, std::int64_t columns, const torch::TensorOptions& options) {
  const auto size = static_cast<std::int64_t>(options.dtype().itemsize());
  const std::int64_t multiple = options.device().is_cpu() || size > 4 ? 1 : kBytes / size;
  const std::int64_t stride = (columns + multiple - 1) / multiple * multiple;
  return torch::empty({rows, stride}, options).narrow(1, 0, columns);
}

std::vector<Range> product_parts(std::int64_t columns, const torch::TensorOptions& options) {
  constexpr std::int64_t kLarge = 4096;  // the second product costs more than it saves for fewer columns
  const auto size = static_cast<std::int64_t>(options.dtype().itemsize());
  const std::int64_t aligned = columns / (kBytes / size) * (kBytes / size);
  if (options.device().is_cpu() || size > 2 || columns < kLarge || aligned == columns) return {{0, columns}};
  return {{0, aligned}, {aligned, columns}};
}

}  // namespace gantry
