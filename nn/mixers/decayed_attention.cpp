#include "gantry/nn/mixers/decayed_attention.h"

#include "gantry/nn/mixers/chunk_states.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

// [samples, chunks, heads, size, values] -> [samples, chunks, groups, size, heads of a group * values], and back.
torch::Tensor by_group(const torch::Tensor& by_head, std::int64_t groups) {
  return by_head.unflatten(2, {groups, -1}).transpose(3, 4).flatten(4);
}
torch::Tensor by_head(const torch::Tensor& by_group, std::int64_t heads) {
  return by_group.unflatten(4, {heads / by_group.size(2), -1}).transpose(3, 4).flatten(2, 3);
}

}  // namespace

RecurrenceResult decayed_attention(const DecayedAttention& of, const torch::Tensor& state,
                                   const torch::Tensor& documents, std::int64_t chunk) {
  const Chunks chunks{of.value.size(1), chunk};
  const std::int64_t groups = of.query.size(2), heads = of.value.size(2);
  const torch::Tensor query = chunks.split(of.query), key = chunks.split(of.key), value = chunks.split(of.value);
  const ChunkDecays decays = chunk_decays(chunks.split(of.decay), chunk_documents(documents, chunks));
  // The products of queries and keys are those of a group; each head has decays of its own.
  const torch::Tensor scores = torch::matmul(query, key.mT()).unsqueeze(3);
  const torch::Tensor attended =
      torch::matmul((scores * decays.within.unflatten(2, {groups, -1})).flatten(2, 3), value);
  const torch::Tensor to_end = by_group(value * decays.to_end.unsqueeze(-1), groups);
  const torch::Tensor local = torch::matmul(to_end.mT(), key)
                                  .unflatten(3, {heads / groups, -1})
                                  .flatten(2, 3);  // [samples, chunks, heads, values, keys]
  const ChunkStates states = decayed_states(
      decays.whole, local, state_or_zeros(state, {value.size(0), heads, value.size(-1), key.size(-1)}, value));
  const torch::Tensor rows = states.before.unflatten(2, {groups, -1}).flatten(3, 4);  // heads of a group * values
  const torch::Tensor carried = by_head(torch::matmul(query, rows.mT()), heads);
  return {chunks.join(attended + carried * decays.from_start.unsqueeze(-1), of.value.scalar_type()), states.last};
}

RecurrenceResult decayed_attention_step(const DecayedAttention& of, const torch::Tensor& state) {
  const torch::ScalarType type = wide_type(of.value);
  const std::int64_t heads = of.value.size(2), of_group = heads / of.query.size(2);
  const auto of_heads = [&](const torch::Tensor& of_groups) {
    return of_groups.select(1, 0).to(type).repeat_interleave(of_group, 1);
  };
  const torch::Tensor value = of.value.select(1, 0).to(type), key = of_heads(of.key);
  const torch::Tensor before = state_or_zeros(state, {value.size(0), heads, value.size(-1), key.size(-1)}, value);
  const torch::Tensor decay = torch::exp(of.decay.select(1, 0).to(type)).unsqueeze(-1).unsqueeze(-1);
  const torch::Tensor after = decay * before + value.unsqueeze(-1) * key.unsqueeze(-2);
  const torch::Tensor out = torch::matmul(after, of_heads(of.query).unsqueeze(-1)).squeeze(-1);
  return {out.unsqueeze(1).to(of.value.scalar_type()), after};
}

}  // namespace gantry::nn
