// Adds weight gradients straight into `.grad`, in one way for every layout, so that bits don't depend on it.
#pragma once

#include <torch/torch.h>

namespace gantry::nn {

// parameter.grad, made zero if there is none yet.
inline torch::Tensor& gradient_of(const torch::Tensor& parameter) {
  auto& gradient = parameter.mutable_grad();
  if (!gradient.defined()) gradient = torch::zeros_like(parameter, at::MemoryFormat::Contiguous).detach();
  return gradient;
}

}  // namespace gantry::nn
