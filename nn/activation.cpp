#include "gantry/nn/activation.h"

#include <cmath>
#include <map>

namespace gantry::nn {
namespace {

using torch::Tensor;
using Function = Tensor (*)(const Tensor& input);

Tensor exact_gelu(const Tensor& input) { return torch::gelu(input); }
Tensor tanh_gelu(const Tensor& input) { return torch::gelu(input, "tanh"); }

// The normal distribution function with the mean and deviation of Ma et al., MEGA (arXiv 2209.10655).
Tensor laplace(const Tensor& input) {
  constexpr double kMean = 0.707107, kDeviation = 0.282095;
  return 0.5 * (1 + torch::erf((input - kMean) / (kDeviation * std::sqrt(2.0))));
}

const std::map<std::string, Function>& functions() {
  static const std::map<std::string, Function> functions = {
      {"gelu", exact_gelu},
      {"gelu_10", [](const Tensor& input) { return torch::clamp(exact_gelu(input), -10, 10); }},
      {"gelu_accurate", tanh_gelu},
      {"gelu_fast", tanh_gelu},
      {"gelu_new", tanh_gelu},
      {"gelu_python", exact_gelu},
      {"gelu_python_tanh", tanh_gelu},
      {"gelu_pytorch_tanh", tanh_gelu},
      {"hardswish", [](const Tensor& input) { return torch::hardswish(input); }},
      {"laplace", laplace},
      {"leaky_relu", [](const Tensor& input) { return torch::leaky_relu(input, 0.01); }},
      {"linear", [](const Tensor& input) { return input; }},
      {"mish", [](const Tensor& input) { return torch::mish(input); }},
      {"quick_gelu", [](const Tensor& input) { return input * torch::sigmoid(1.702 * input); }},
      {"relu", [](const Tensor& input) { return torch::relu(input); }},
      {"relu2", [](const Tensor& input) { return torch::square(torch::relu(input)); }},
      {"relu6", [](const Tensor& input) { return torch::clamp(input, 0, 6); }},
      {"sigmoid", [](const Tensor& input) { return torch::sigmoid(input); }},
      {"silu", [](const Tensor& input) { return torch::silu(input); }},
      {"sqrtsoftplus", [](const Tensor& input) { return torch::sqrt(torch::softplus(input)); }},
      {"swish", [](const Tensor& input) { return torch::silu(input); }},
      {"tanh", [](const Tensor& input) { return torch::tanh(input); }}};
  return functions;
}

}  // namespace

Tensor activate(const Tensor& input, const std::string& name) { return functions().at(name)(input); }

}  // namespace gantry::nn
