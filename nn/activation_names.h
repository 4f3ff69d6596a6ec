// The activations that models name in their configurations.
#pragma once

#include <string>
#include <vector>

namespace gantry::nn {

// The names in transformers' table ACT2FN, without prelu and xielu, which have weights of their own.
inline const std::vector<std::string>& activation_names() {
  static const std::vector<std::string> names = {
      "gelu",      "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python",  "gelu_python_tanh",
      "hardswish", "laplace", "leaky_relu",    "linear",    "mish",     "quick_gelu",   "gelu_pytorch_tanh",
      "relu",      "relu2",   "relu6",         "sigmoid",   "silu",     "sqrtsoftplus", "swish",
      "tanh"};
  return names;
}

}  // namespace gantry::nn
