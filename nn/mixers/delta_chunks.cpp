#include "gantry/nn/mixers/delta_chunks.h"

#include "gantry/nn/mixers/chunk_states.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

RecurrenceResult delta_chunks(const DeltaChunks& of, const torch::Tensor& state) {
  const std::int64_t keys = of.key.size(-1), values = of.value.size(-1);
  const torch::Tensor beta = of.beta.unsqueeze(-1);
  // Each token writes its value less that which earlier tokens of the chunk have written for its key. The diagonal of
  // the system is 1 and is not read.
  const torch::Tensor written =
      torch::linalg_solve_triangular(of.key_scores * beta, torch::cat({of.value * beta, of.key * beta}, -1),
                                     /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
  const DeltaWrites writes{of.decay, written.narrow(-1, values, keys), written.narrow(-1, 0, values), of.key_to_end};
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
