#include "gantry/nn/mixers/rg_lru.h"

#include <optional>

#include "gantry/nn/mixers/chunk_states.h"
#include "gantry/tensors/kernels/rg_lru.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kDecayScale = 8;

// `of`: x, the gates, the logarithms of the smallest decays, the state before and the tokens that begin texts.
kernels::RgLruTensors lru_tensors(const variable_list& of) {
  const auto close = [](const torch::Tensor& tensor) {
    return tensor.defined() ? tensor.detach().contiguous() : tensor;
  };
  return {close(of[0]), close(of[1]), close(of[2]), close(of[3]), close(of[4]), close(of[5])};
}

// Returns the states after each token.
struct GatedStates : torch::autograd::Function<GatedStates> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& input_gate,
                               const torch::Tensor& recurrent_gate, const torch::Tensor& scale,
                               const torch::Tensor& before, const std::optional<torch::Tensor>& starts) {
    const variable_list kept = {x, input_gate, recurrent_gate, scale, before, starts.value_or(torch::Tensor())};
    torch::Tensor states = kernels::rg_lru(lru_tensors(kept));
    context->save_for_backward({x, input_gate, recurrent_gate, scale, before, kept.back(), states});
    return states;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list of = context->get_saved_variables();
    const auto made = kernels::rg_lru_backward(lru_tensors(of), of.back().detach(), gradients[0].contiguous());
    const torch::ScalarType type = of[0].scalar_type();
    return {made.x.to(type), made.input_gate.to(type), made.recurrent_gate.to(type), made.scale, made.initial, {}};
  }
};

}  // namespace

RecurrenceResult rg_lru(const RgLruInputs& inputs, const torch::Tensor& state) {
  const torch::ScalarType type = inputs.x.scalar_type();
  const torch::Tensor scale = -kDecayScale * torch::softplus(inputs.rate.to(wide_type(inputs.x)));
  const torch::Tensor before = state_or_zeros(state, {inputs.x.size(0), inputs.x.size(2)}, scale);
  std::optional<torch::Tensor> starts;
  if (inputs.starts.defined()) starts = inputs.starts.expand({inputs.x.size(0), inputs.x.size(1)});
  const torch::Tensor states =
      GatedStates::apply(inputs.x, inputs.input_gate.to(type), inputs.recurrent_gate.to(type), scale, before, starts);
  return {states.to(type), states.select(1, states.size(1) - 1)};
}

}  // namespace gantry::nn
