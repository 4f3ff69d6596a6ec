// Evaluates the closure at the start of an optimizer's step.
#pragma once

#include "gantry/tensors/libtorch.h"

namespace gantry {

// Returns the loss of the closure, which also computes gradients. Undefined without a closure.
inline torch::Tensor closure_loss(const torch::optim::Optimizer::LossClosure& closure) {
  if (!closure) return {};
  const torch::AutoGradMode enable(true);
  return closure();
}

}  // namespace gantry
