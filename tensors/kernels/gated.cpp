#include "gantry/tensors/kernels/gated.h"

#include <torch/library.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::kernels {
namespace {

at::Tensor& gated_by_activations(at::Tensor& out, const at::Tensor& gate, const at::Tensor& values,
                                 std::int64_t function) {
  if (static_cast<GateFunction>(function) == GateFunction::kSilu)
    at::silu_out(out, gate);
  else
    at::gelu_out(out, gate, static_cast<GateFunction>(function) == GateFunction::kGelu ? "none" : "tanh");
  return out.mul_(values);
}

void gradients_by_activations(at::Tensor& of_gate, at::Tensor& of_values, const at::Tensor& gradient,
                              const at::Tensor& gate, const at::Tensor& values, std::int64_t function) {
  // The gradient of the activated gate is in the memory of the gate's until that is known.
  at::mul_out(of_gate, gradient, values);
  if (static_cast<GateFunction>(function) == GateFunction::kSilu) {
    at::silu_out(of_values, gate).mul_(gradient);
    at::silu_backward_out(of_gate, of_gate, gate);
  } else {
    const char* const how = static_cast<GateFunction>(function) == GateFunction::kGelu ? "none" : "tanh";
    at::gelu_out(of_values, gate, how).mul_(gradient);
    at::gelu_backward_out(of_gate, of_gate, gate, how);
  }
}

}  // namespace

torch::Tensor gated(const torch::Tensor& gate, const torch::Tensor& values, GateFunction function) {
  static const auto kOperator =
      c10::Dispatcher::singleton().findSchemaOrThrow("gantry::gated_", "").typed<decltype(gated_by_activations)>();
  if (gate.dim() != 2 || gate.sizes() != values.sizes() || gate.scalar_type() != values.scalar_type())
    throw InternalError({"gated values", "gates " + describe(gate) + " and values " + describe(values) + " do not fit",
                         "matrices of one shape and type", ""});
  const torch::NoGradGuard no_grad;
  at::Tensor out = at::empty(gate.sizes(), gate.options().requires_grad(false));
  if (out.numel() == 0) return out;
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  kOperator.call(out, gate, values, static_cast<std::int64_t>(function));
  return out;
}

void gated_backward(torch::Tensor& of_gate, torch::Tensor& of_values, const torch::Tensor& gradient,
                    const torch::Tensor& gate, const torch::Tensor& values, GateFunction function) {
  static const auto kOperator = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("gantry::gated_backward_", "")
                                    .typed<decltype(gradients_by_activations)>();
  if (gradient.numel() == 0) return;
  const torch::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  kOperator.call(of_gate, of_values, gradient, gate, values, static_cast<std::int64_t>(function));
}

TORCH_LIBRARY_FRAGMENT(gantry, library) {
  library.def("gated_(Tensor(a!) out, Tensor gate, Tensor values, int function) -> Tensor(a!)");
  library.def(
      "gated_backward_(Tensor(a!) of_gate, Tensor(b!) of_values, Tensor gradient, Tensor gate, Tensor values, "
      "int function) -> ()");
}

TORCH_LIBRARY_IMPL(gantry, CompositeExplicitAutograd, library) {
  library.impl("gated_", &gated_by_activations);
  library.impl("gated_backward_", &gradients_by_activations);
}

}  // namespace gantry::kernels
