#include "gantry/nn/step_bias.h"

#include <cmath>

#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

torch::Tensor initial_step_bias(std::int64_t count, double first, double last) {
  if (first == 0) return torch::ones({count});
  const double low = std::log(first), high = std::log(last);
  const torch::Tensor places = (torch::arange(count, torch::kFloat32) + 0.5) / static_cast<double>(count);
  const torch::Tensor steps = (places * (high - low) + low).exp();
  return steps + torch::log(-torch::expm1(-steps));
}

}  // namespace gantry::nn
