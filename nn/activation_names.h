// The activations that models name in their configurations.
#pragma once

#include <string>
#include <vector>

namespace gantry::nn {

// Hugging Face's names: gelu (exact), gelu_new and gelu_pytorch_tanh (its tanh form), relu, silu.
inline const std::vector<std::string>& activation_names() {
  static const std::vector<std::string> names = {"gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"};
  return names;
}

}  // namespace gantry::nn
