// Test values for floating-point reductions.
#pragma once

#include "gantry/tensors/libtorch.h"

namespace gantry::testing {

// Values of many magnitudes, whose sum depends on the order of addition.
inline torch::Tensor rough(int rank, std::int64_t elements, torch::ScalarType type) {
  const torch::Tensor index = torch::arange(elements, torch::kFloat64) + 0.7 * rank;
  return (torch::sin(index * 12.9898) * torch::exp(3 * torch::cos(index))).to(type);
}

}  // namespace gantry::testing
