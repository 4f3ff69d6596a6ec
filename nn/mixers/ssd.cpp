#include "gantry/nn/mixers/ssd.h"

#include "gantry/nn/mixers/decayed_attention.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

DecayedAttention as_attention(const SsdInputs& inputs) {
  const torch::ScalarType type = wide_type(inputs.x);
  const torch::Tensor dt = inputs.dt.to(type);
  return {inputs.c, inputs.b, inputs.x.to(type) * dt.unsqueeze(-1), dt * inputs.a.to(type)};
}

RecurrenceResult with_skip(const RecurrenceResult& result, const SsdInputs& inputs) {
  torch::Tensor out = result.out;
  if (inputs.d.defined()) out = out + inputs.x * inputs.d.to(out.scalar_type()).unsqueeze(-1);
  return {out.to(inputs.x.scalar_type()), result.state};
}

}  // namespace

RecurrenceResult ssd(const SsdInputs& inputs, const torch::Tensor& state, const torch::Tensor& documents,
                     std::int64_t chunk) {
  return with_skip(decayed_attention(as_attention(inputs), state, documents, chunk), inputs);
}

RecurrenceResult ssd_step(const SsdInputs& inputs, const torch::Tensor& state) {
  return with_skip(decayed_attention_step(as_attention(inputs), state), inputs);
}

}  // namespace gantry::nn
