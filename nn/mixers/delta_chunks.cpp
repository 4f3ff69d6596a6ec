#include "gantry/nn/mixers/delta_chunks.h"

#include "gantry/nn/mixers/chunk_states.h"
#include "gantry/tensors/kernels/unit_lower.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// X with (1 + A) X = R, in which A [..., size, size] is read below its diagonal.
struct SolveWrites : torch::autograd::Function<SolveWrites> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& a, const torch::Tensor& r) {
    torch::Tensor x = kernels::solve_unit_lower(a, r, /*transposed=*/false);
    context->save_for_backward({a, x});
    return x;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const torch::Tensor to_r = kernels::solve_unit_lower(saved[0], gradients[0], /*transposed=*/true);
    return {torch::matmul(to_r, saved[1].mT()).tril_(-1).neg_(), to_r};
  }
};

}  // namespace

RecurrenceResult delta_chunks(const DeltaChunks& of, const torch::Tensor& state) {
  const std::int64_t keys = of.key.size(-1), values = of.value.size(-1);
  const torch::Tensor beta = of.beta.unsqueeze(-1);
  // Each token writes its value less that which earlier tokens of the chunk have written for its key.
  const torch::Tensor written =
      SolveWrites::apply(of.key_scores * beta, torch::cat({of.value * beta, of.key * beta}, -1));
  const auto parts = written.split_with_sizes({values, keys}, -1);
  const DeltaWrites writes{of.decay, parts[1], parts[0], of.key_to_end};
  const DeltaStates deltas =
      delta_states(writes, state_or_zeros(state, {of.value.size(0), of.value.size(2), keys, values}, of.value));
  return {torch::matmul(of.query, deltas.states.before) + torch::matmul(of.scores, deltas.values), deltas.states.last};
}

RecurrenceResult delta_token(const DeltaToken& of, const torch::Tensor& state) {
  const torch::Tensor before =
      state_or_zeros(state, {of.value.size(0), of.value.size(1), of.key.size(-1), of.value.size(-1)}, of.value);
  const torch::Tensor decayed = torch::exp(of.decay).unsqueeze(-1) * before, key = of.key.unsqueeze(-1);
  const torch::Tensor known = (decayed * key).sum(-2);
  const torch::Tensor written = of.beta.unsqueeze(-1) * (of.value - known);
  const torch::Tensor after = decayed + key * written.unsqueeze(-2);
  return {(after * of.query.unsqueeze(-1)).sum(-2), after};
}

}  // namespace gantry::nn
