#include "gantry/models/vision/patch_rotary.h"

#include "gantry/tensors/libtorch.h"

namespace gantry::models {

torch::Tensor patch_angles(const torch::Tensor& places, std::int64_t head_size, double theta, torch::ScalarType type,
                           std::int64_t column_offset) {
  const auto options = torch::TensorOptions(at::promote_types(type, torch::kFloat32)).device(places.device());
  const torch::Tensor of_rows = torch::arange(0, head_size, 4, options);
  const torch::Tensor exponents = torch::stack({of_rows, of_rows + column_offset}) / static_cast<double>(head_size);
  return (places.unsqueeze(-1).to(options.dtype()) * torch::pow(theta, -exponents)).flatten(2);
}

torch::Tensor turned_by(const torch::Tensor& heads, const torch::Tensor& angles) {
  const auto halves = heads.chunk(2, -1);
  const torch::Tensor cosine = angles.cos().unsqueeze(1), sine = angles.sin().unsqueeze(1);  // [samples, 1, patches, .]
  return torch::cat({halves[0] * cosine - halves[1] * sine, halves[1] * cosine + halves[0] * sine}, -1)
      .to(heads.scalar_type());
}

}  // namespace gantry::models
