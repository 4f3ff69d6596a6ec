// The activations that models name in their configurations.
#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

namespace gantry::nn {

// Hugging Face's names: gelu (exact), gelu_new and gelu_pytorch_tanh (its tanh form), relu, silu.
inline const std::vector<std::string>& activation_names() {
  static const std::vector<std::string> names = {"gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"};
  return names;
}

// `name` is one of activation_names().
inline torch::Tensor activate(const torch::Tensor& input, const std::string& name) {
  if (name == "silu") return torch::silu(input);
  if (name == "relu") return torch::relu(input);
  return name == "gelu" ? torch::gelu(input) : torch::gelu(input, "tanh");
}

}  // namespace gantry::nn
