// Applies an activation by its name.
#pragma once

#include <string>

#include <torch/types.h>

#include "gantry/nn/activation_names.h"

namespace gantry::nn {

// `name` is one of activation_names().
inline torch::Tensor activate(const torch::Tensor& input, const std::string& name) {
  if (name == "silu") return torch::silu(input);
  if (name == "relu") return torch::relu(input);
  return name == "gelu" ? torch::gelu(input) : torch::gelu(input, "tanh");
}

}  // namespace gantry::nn
