// What an optimizer keeps beside the tensors that it steps, in bytes.
#pragma once

#include <cstdint>

#include <torch/optim/optimizer.h>

namespace gantry {

struct OptimizerBytes {
  std::int64_t held = 0;     // of parameters that were stepped
  std::int64_t to_come = 0;  // of those that the first step will make room for
};

// Knows LibTorch's optimizers that can be saved, and Gantry's. Another class counts as keeping nothing.
OptimizerBytes optimizer_bytes(torch::optim::Optimizer& optimizer);

}  // namespace gantry
