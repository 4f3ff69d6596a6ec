#include "gantry/nn/mixers/rg_lru.h"

#include "gantry/nn/mixers/chunk_states.h"
#include "gantry/nn/mixers/linear_scan.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kDecayScale = 8, kLargestSlope = 1000;

// A square root whose slope is bounded near zero.
struct BoundedRoot : torch::autograd::Function<BoundedRoot> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input) {
    context->save_for_backward({input});
    return input.sqrt();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const torch::Tensor input = context->get_saved_variables()[0];
    return {gradients[0] * torch::rsqrt((4 * input).clamp_min(1 / (kLargestSlope * kLargestSlope)))};
  }
};

struct GatedInputs {
  torch::Tensor decay, input;  // [samples, tokens, channels] in wide_type()
};

GatedInputs gated(const RgLruInputs& of) {
  const torch::ScalarType type = wide_type(of.x);
  const torch::Tensor logarithms =
      -kDecayScale * torch::sigmoid(of.recurrent_gate.to(type)) * torch::softplus(of.rate.to(type));
  torch::Tensor decay = logarithms.exp(), factor = BoundedRoot::apply(-torch::expm1(2 * logarithms));
  if (of.starts.defined()) {
    const torch::Tensor starts = of.starts.unsqueeze(-1);
    decay = decay.masked_fill(starts, 0);
    factor = factor.masked_fill(starts, 1);
  }
  return {decay, of.x.to(type) * torch::sigmoid(of.input_gate.to(type)) * factor};
}

torch::Tensor before_of(const torch::Tensor& state, const GatedInputs& made) {
  return state_or_zeros(state, {made.input.size(0), made.input.size(2)}, made.input);
}

}  // namespace

RecurrenceResult rg_lru(const RgLruInputs& inputs, const torch::Tensor& state, std::int64_t chunk) {
  const GatedInputs made = gated(inputs);
  const torch::Tensor states = linear_scan(made.decay, made.input, before_of(state, made), chunk);
  return {states.to(inputs.x.scalar_type()), states.select(1, states.size(1) - 1)};
}

RecurrenceResult rg_lru_step(const RgLruInputs& inputs, const torch::Tensor& state) {
  const GatedInputs made = gated(inputs);
  const torch::Tensor after = torch::addcmul(made.input.select(1, 0), made.decay.select(1, 0), before_of(state, made));
  return {after.unsqueeze(1).to(inputs.x.scalar_type()), after};
}

}  // namespace gantry::nn
