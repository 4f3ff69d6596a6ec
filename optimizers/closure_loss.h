// What an optimizer's step does first.
#pragma once

#include "gantry/tensors/libtorch.h"

namespace gantry {

// The loss that the step's closure computes, with its gradients; undefined without one.
inline torch::Tensor closure_loss(const torch::optim::Optimizer::LossClosure& closure) {
  if (!closure) return {};
  const torch::AutoGradMode enable(true);
  return closure();
}

}  // namespace gantry
