// Memory that an optimizer uses in addition to the tensors that it steps, in bytes.
#pragma once

#include <cstdint>

#include <torch/optim/optimizer.h>

namespace gantry {

struct OptimizerBytes {
  std::int64_t held = 0;     // state of parameters that were stepped
  std::int64_t to_come = 0;  // state that the first step will allocate
};

// Supports LibTorch's optimizers that can be saved, and Gantry's. Another class counts as having no state.
OptimizerBytes optimizer_bytes(torch::optim::Optimizer& optimizer);

}  // namespace gantry
