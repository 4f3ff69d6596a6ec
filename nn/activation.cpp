#include "gantry/nn/activation.h"

#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "gantry/tensors/kernels/gated.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using kernels::GateFunction;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;
using Function = Tensor (*)(const Tensor& input);

Tensor exact_gelu(const Tensor& input) { return torch::gelu(input); }
Tensor tanh_gelu(const Tensor& input) { return torch::gelu(input, "tanh"); }
Tensor silu(const Tensor& input) { return torch::silu(input); }

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
      {"silu", silu},
      {"sqrtsoftplus", [](const Tensor& input) { return torch::sqrt(torch::softplus(input)); }},
      {"swish", silu},
      {"tanh", [](const Tensor& input) { return torch::tanh(input); }}};
  return functions;
}

// The kernel's function for an activation; none: there is no kernel.
std::optional<GateFunction> gate_function(const std::string& name) {
  const Function function = functions().at(name);
  if (function == silu) return GateFunction::kSilu;
  if (function == exact_gelu) return GateFunction::kGelu;
  if (function == tanh_gelu) return GateFunction::kTanhGelu;
  return std::nullopt;
}

// [..., columns] -> [rows, columns] with adjacent columns.
Tensor as_rows(const Tensor& tensor) {
  const Tensor rows = tensor.reshape({-1, tensor.size(-1)});
  return rows.size(1) <= 1 || rows.stride(1) == 1 ? rows : rows.contiguous();
}

struct Gated : torch::autograd::Function<Gated> {
  static Variable forward(AutogradContext* context, const Variable& gate, const Variable& values,
                          std::int64_t function) {
    context->save_for_backward({gate, values});
    context->saved_data["function"] = function;
    return kernels::gated(as_rows(gate), as_rows(values), static_cast<GateFunction>(function)).view(gate.sizes());
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto function = static_cast<GateFunction>(context->saved_data["function"].toInt());
    const Tensor gate = as_rows(saved[0]), values = as_rows(saved[1]);
    Tensor of_gate = torch::empty(gate.sizes(), gate.options()), of_values = torch::empty_like(of_gate);
    kernels::gated_backward(of_gate, of_values, as_rows(gradients[0]), gate, values, function);
    return {of_gate.view(saved[0].sizes()), of_values.view(saved[1].sizes()), {}};
  }
};

struct GatedHalves : torch::autograd::Function<GatedHalves> {
  static Variable forward(AutogradContext* context, const Variable& both, std::int64_t function) {
    context->save_for_backward({both});
    context->saved_data["function"] = function;
    const Tensor rows = as_rows(both);
    std::vector<std::int64_t> shape = both.sizes().vec();
    shape.back() /= 2;
    return kernels::gated(rows.narrow(1, 0, shape.back()), rows.narrow(1, shape.back(), shape.back()),
                          static_cast<GateFunction>(function))
        .view(shape);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor rows = as_rows(saved[0]), of_both = torch::empty(rows.sizes(), rows.options());
    const std::int64_t half = rows.size(1) / 2;
    Tensor of_gate = of_both.narrow(1, 0, half), of_values = of_both.narrow(1, half, half);
    kernels::gated_backward(of_gate, of_values, as_rows(gradients[0]), rows.narrow(1, 0, half),
                            rows.narrow(1, half, half),
                            static_cast<GateFunction>(context->saved_data["function"].toInt()));
    return {of_both.view(saved[0].sizes()), {}};
  }
};

}  // namespace

Tensor activate(const Tensor& input, const std::string& name) { return functions().at(name)(input); }

Tensor gated(const Tensor& gate, const Tensor& values, const std::string& name) {
  const auto function = gate_function(name);
  if (!function) return activate(gate, name) * values;
  return Gated::apply(gate, values, static_cast<std::int64_t>(*function));
}

Tensor gated_halves(const Tensor& gate_and_values, const std::string& name) {
  if (const auto function = gate_function(name))
    return GatedHalves::apply(gate_and_values, static_cast<std::int64_t>(*function));
  const auto halves = gate_and_values.chunk(2, -1);
  return activate(halves[0], name) * halves[1];
}

}  // namespace gantry::nn
