// Values without a random generator: the same on every rank, and all different.
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "gantry/nn/linear.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {

// sin(0), sin(step), sin(2 step), ... in float64.
inline torch::Tensor sines(const std::vector<std::int64_t>& shape, double step = 1) {
  const auto elements = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  return torch::sin(torch::arange(elements, torch::kFloat64) * step).view(shape);
}

// A layer in float64 whose weight and bias have such values.
inline nn::Linear linear_of_sines(std::int64_t in, std::int64_t out) {
  nn::Linear made(in, out);
  made->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  made->weight.copy_(sines({out, in}));
  made->bias.copy_(sines({out}));
  return made;
}

}  // namespace gantry::testing
