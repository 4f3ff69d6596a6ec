#include "gantry/nn/mixers/kimi_delta.h"

#include <cmath>

#include "gantry/nn/mixers/delta_chunks.h"
#include "gantry/tensors/kernels/channel_scores.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// kernels::channel_scores() of query, key and sums, with gradients.
struct ChannelScoring : torch::autograd::Function<ChannelScoring> {
  static variable_list forward(AutogradContext* context, const torch::Tensor& query, const torch::Tensor& key,
                               const torch::Tensor& sums) {
    context->save_for_backward({query, key, sums});
    const auto scores = kernels::channel_scores({query, key, sums});
    return {scores.of_query, scores.of_key};
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list of = context->get_saved_variables();
    const auto made =
        kernels::channel_scores_backward({of[0], of[1], of[2]}, {gradients[0].contiguous(), gradients[1].contiguous()});
    return {made.query, made.key, made.sums};
  }
};

torch::Tensor scaled_kimi_query(const torch::Tensor& query) {
  return unit_heads(query) / std::sqrt(static_cast<double>(query.size(-1)));
}

}  // namespace

RecurrenceResult kimi_delta(const KimiDeltaInputs& inputs, const torch::Tensor& state, const torch::Tensor& documents,
                            std::int64_t chunk) {
  const Chunks chunks{inputs.value.size(1), chunk};
  const ChunkDocuments parts = chunk_documents(documents, chunks);
  const torch::Tensor query = chunks.split(scaled_kimi_query(inputs.query));
  const torch::Tensor key = chunks.split(unit_heads(inputs.key));
  const torch::Tensor sums = chunks.split(inputs.decay).cumsum(-2), end = sums.narrow(-2, chunk - 1, 1);
  const variable_list scores = ChannelScoring::apply(query, key, sums);
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
