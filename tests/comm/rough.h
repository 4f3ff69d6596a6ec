// What sums of floating-point numbers are tested with.
#pragma once

#include "gantry/tensors/libtorch.h"

namespace gantry::testing {

// Numbers of all magnitudes, whose sum depends on the order.
inline torch::Tensor rough(int rank, std::int64_t elements, torch::ScalarType type) {
  const torch::Tensor index = torch::arange(elements, torch::kFloat64) + 0.7 * rank;
  return (torch::sin(index * 12.9898) * torch::exp(3 * torch::cos(index))).to(type);
}

}  // namespace gantry::testing
