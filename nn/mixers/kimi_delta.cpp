#include "gantry/nn/mixers/kimi_delta.h"

#include <cmath>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/nn/mixers/delta_chunks.h"
#include "gantry/nn/recompute.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

// [..., blocks, size, size] of both halves of each pair, and the products between them -> [..., pairs, 2 size, 2 size].
torch::Tensor joined_halves(const torch::Tensor& halves, const torch::Tensor& between) {
  const torch::Tensor pairs = halves.unflatten(-3, {-1, 2});
  const torch::Tensor first = pairs.select(-3, 0), second = pairs.select(-3, 1);
  return torch::cat({torch::cat({first, torch::zeros_like(first)}, -1), torch::cat({between, second}, -1)}, -2);
}

// sum_d q_id k_jd e^{G_id - G_jd} for j <= i, and the same of keys with keys for j < i, [..., size, size]. `sums`: G.
std::vector<torch::Tensor> channel_scores(const torch::Tensor& query, const torch::Tensor& key,
                                          const torch::Tensor& sums) {
  torch::Tensor scores = (query * key).sum(-1).unsqueeze(-1).unsqueeze(-1), key_scores = torch::zeros_like(scores);
  for (std::int64_t half = 1; half < sums.size(-2); half *= 2) {
    const auto first = [half](const torch::Tensor& of) { return of.unflatten(-2, {-1, 2, half}).select(-3, 0); };
    const auto second = [half](const torch::Tensor& of) { return of.unflatten(-2, {-1, 2, half}).select(-3, 1); };
    const torch::Tensor border = first(sums).narrow(-2, half - 1, 1);
    const torch::Tensor to_border = first(key) * torch::exp(border - first(sums));
    const torch::Tensor from_border = torch::exp(second(sums) - border);
    const torch::Tensor between =
        torch::matmul(torch::cat({second(query) * from_border, second(key) * from_border}, -2), to_border.mT());
    scores = joined_halves(scores, between.narrow(-2, 0, half));
    key_scores = joined_halves(key_scores, between.narrow(-2, half, half));
  }
  return {scores.squeeze(-3), key_scores.squeeze(-3)};
}

torch::Tensor scaled_kimi_query(const torch::Tensor& query) {
  return unit_heads(query) / std::sqrt(static_cast<double>(query.size(-1)));
}

void check_halves(std::int64_t chunk) {
  if (chunk < 1 || (chunk & (chunk - 1)) != 0)
    throw InternalError(
        {"Kimi delta attention", fmt::format("chunks of {} tokens cannot be halved", chunk), "a power of two", ""});
}

}  // namespace

RecurrenceResult kimi_delta(const KimiDeltaInputs& inputs, const torch::Tensor& state, const torch::Tensor& documents,
                            std::int64_t chunk) {
  check_halves(chunk);
  const Chunks chunks{inputs.value.size(1), chunk};
  const ChunkDocuments parts = chunk_documents(documents, chunks);
  const torch::Tensor query = chunks.split(scaled_kimi_query(inputs.query));
  const torch::Tensor key = chunks.split(unit_heads(inputs.key));
  const torch::Tensor sums = chunks.split(inputs.decay).cumsum(-2), end = sums.narrow(-2, chunk - 1, 1);
  const auto scores = recompute_all(
      [](const std::vector<torch::Tensor>& of) { return channel_scores(of[0], of[1], of[2]); }, {query, key, sums});
  const torch::Tensor from_start = masked(torch::exp(sums), parts.from_start, 1);
  const DeltaChunks of{.scores = masked(scores[0], parts.same),
                       .key_scores = masked(scores[1], parts.same),
                       .query = query * from_start,
                       .key = key * from_start,
                       .key_to_end = key * masked(torch::exp(end - sums), parts.to_end, 1),
                       .decay = masked(torch::exp(end.squeeze(-2)), parts.whole, 1),
                       .value = chunks.split(inputs.value),
                       .beta = chunks.split(inputs.beta)};
  const RecurrenceResult result = delta_chunks(of, state);
  return {chunks.join(result.out, inputs.value.scalar_type()), result.state};
}

RecurrenceResult kimi_delta_step(const KimiDeltaInputs& inputs, const torch::Tensor& state) {
  const auto token = [&](const torch::Tensor& of) { return of.select(1, 0).to(wide_type(inputs.value)); };
  const RecurrenceResult result = delta_token({.query = scaled_kimi_query(inputs.query).select(1, 0),
                                               .key = unit_heads(inputs.key).select(1, 0),
                                               .value = token(inputs.value),
                                               .decay = token(inputs.decay),
                                               .beta = token(inputs.beta)},
                                              state);
  return {result.out.unsqueeze(1).to(inputs.value.scalar_type()), result.state};
}

}  // namespace gantry::nn
