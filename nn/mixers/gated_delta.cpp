#include "gantry/nn/mixers/gated_delta.h"

#include <cmath>

#include "gantry/nn/mixers/delta_chunks.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

torch::Tensor scaled_query(const torch::Tensor& query) {
  return unit_heads(query) / std::sqrt(static_cast<double>(query.size(-1)));
}

// Heads are dimension 2; each is repeated for the value heads that it serves.
torch::Tensor for_values(const torch::Tensor& of_key_heads, std::int64_t value_heads) {
  const std::int64_t times = value_heads / of_key_heads.size(2);
  return times == 1 ? of_key_heads : of_key_heads.repeat_interleave(times, 2);
}

}  // namespace

RecurrenceResult gated_delta(const GatedDeltaInputs& inputs, const torch::Tensor& state, const torch::Tensor& documents,
                             std::int64_t chunk) {
  const Chunks chunks{inputs.value.size(1), chunk};
  const std::int64_t heads = inputs.value.size(2);
  const torch::Tensor query = chunks.split(scaled_query(inputs.query)), key = chunks.split(unit_heads(inputs.key));
  const ChunkDecays decays = chunk_decays(chunks.split(inputs.decay), chunk_documents(documents, chunks));
  const torch::Tensor keys = for_values(key, heads), from_start = decays.from_start.unsqueeze(-1);
  const DeltaChunks of{.scores = for_values(torch::matmul(query, key.mT()), heads) * decays.within,
                       .key_scores = for_values(torch::matmul(key, key.mT()), heads) * decays.within,
                       .query = for_values(query, heads) * from_start,
                       .key = keys * from_start,
                       .key_to_end = keys * decays.to_end.unsqueeze(-1),
                       .decay = decays.whole.unsqueeze(-1),
                       .value = chunks.split(inputs.value),
                       .beta = chunks.split(inputs.beta)};
  const RecurrenceResult result = delta_chunks(of, state);
  return {chunks.join(result.out, inputs.value.scalar_type()), result.state};
}

RecurrenceResult gated_delta_step(const GatedDeltaInputs& inputs, const torch::Tensor& state) {
  const torch::ScalarType type = wide_type(inputs.value);
  const std::int64_t heads = inputs.value.size(2);
  const RecurrenceResult result = delta_token({.query = for_values(scaled_query(inputs.query), heads).select(1, 0),
                                               .key = for_values(unit_heads(inputs.key), heads).select(1, 0),
                                               .value = inputs.value.select(1, 0).to(type),
                                               .decay = inputs.decay.select(1, 0).to(type).unsqueeze(-1),
                                               .beta = inputs.beta.select(1, 0).to(type)},
                                              state);
  return {result.out.unsqueeze(1).to(inputs.value.scalar_type()), result.state};
}

}  // namespace gantry::nn
