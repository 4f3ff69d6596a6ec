#include "gantry/nn/mixers/lightning.h"

#include "gantry/nn/mixers/decayed_attention.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

// The same attention with values as rows of the states.
DecayedAttention with_constant_decay(const LightningInputs& inputs) {
  const torch::Tensor slope = inputs.slope.to(wide_type(inputs.value));
  return {inputs.query, inputs.key, inputs.value, -slope.expand({1, inputs.value.size(1), slope.size(0)})};
}

torch::Tensor turned(const torch::Tensor& state) { return state.defined() ? state.mT() : state; }

}  // namespace

RecurrenceResult lightning_attention(const LightningInputs& inputs, const torch::Tensor& state,
                                     const torch::Tensor& documents, std::int64_t chunk) {
  const RecurrenceResult result = decayed_attention(with_constant_decay(inputs), turned(state), documents, chunk);
  return {result.out, turned(result.state)};
}

RecurrenceResult lightning_attention_step(const LightningInputs& inputs, const torch::Tensor& state) {
  const RecurrenceResult result = decayed_attention_step(with_constant_decay(inputs), turned(state));
  return {result.out, turned(result.state)};
}

}  // namespace gantry::nn
