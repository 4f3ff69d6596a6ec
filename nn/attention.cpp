#include "gantry/nn/attention.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/nn/recompute.h"
#include "gantry/tensors/random_context.h"

namespace gantry::nn {
namespace {

// The key head of each query head held here, by index into the held ones.
torch::Tensor for_query_heads(const torch::Tensor& key, const HeadRange& heads, const HeadRange& key_heads) {
  const std::int64_t group = heads.total / key_heads.total;
  if (group == 1) return key;
  if (heads.count % key_heads.count == 0 && heads.first == key_heads.first * group &&
      heads.count == key_heads.count * group)
    return key.repeat_interleave(group, 1);
  std::vector<std::int64_t> index;
  for (std::int64_t head = heads.first; head < heads.first + heads.count; ++head)
    index.push_back(head / group - key_heads.first);
  return key.index_select(1, torch::tensor(index, torch::TensorOptions(torch::kInt64).device(key.device())));
}

// Which of `keys` keys each of the last `queries` tokens sees: its own and those before it.
torch::Tensor seen_keys(std::int64_t queries, std::int64_t keys, const torch::TensorOptions& options) {
  return torch::ones({queries, keys}, options).tril(keys - queries);
}

// Added to the scores: zero where a key counts, the dtype's least number where not, as Hugging Face's models do. A
// query without any key then sees all of them alike, not NaN.
torch::Tensor additive_mask(const AttentionOptions& options, const torch::Tensor& query) {
  if (!options.keep.defined()) return {};
  torch::Tensor keep = options.keep.unsqueeze(1).unsqueeze(1);
  if (options.causal && query.size(2) > 1) keep = keep & seen_keys(query.size(2), keep.size(-1), keep.options());
  double least = std::numeric_limits<float>::lowest();
  if (query.scalar_type() == torch::kFloat64) least = std::numeric_limits<double>::lowest();
  if (query.scalar_type() == torch::kHalf) least = -65504;
  return torch::zeros(keep.sizes(), query.options().requires_grad(false)).masked_fill(~keep, least);
}

torch::Tensor with_dropout(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                           const HeadRange& heads, const AttentionOptions& options, const DropoutImpl& dropout) {
  const std::int64_t tokens = query.size(2);
  torch::Tensor scores = at::matmul(query * (1 / std::sqrt(static_cast<double>(query.size(3)))), key.transpose(-2, -1));
  if (const torch::Tensor mask = additive_mask(options, query); mask.defined()) {
    scores = scores + mask;
  } else if (options.causal) {
    const torch::Tensor later =
        torch::ones({tokens, tokens}, torch::TensorOptions(torch::kBool).device(query.device())).triu(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  const torch::Tensor weights = scores.softmax(-1);
  const RandomContext context = random_context();
  const torch::Tensor mask =
      dropout_mask(weights, dropout.p(), dropout.global_name(), context, {context.first_sample, heads.first, 0, 0},
                   {0, heads.total, weights.size(2), weights.size(3)});
  return at::matmul(weights * mask, value);
}

}  // namespace

HeadRange held_heads(const Linear& projection, std::int64_t head_size, std::int64_t total, std::size_t segment) {
  const AxisPlacement& placement = projection->weight_placement();
  if (!placement.sharded()) return {0, total, total};
  const Segment& part = placement.segments.at(segment);
  const Range held = part.range_of_rank[projection->group()->rank()];
  return {(held.begin - part.extent.begin) / head_size, held.size() / head_size, total};
}

namespace {

torch::Tensor core(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                   const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                   const DropoutImpl& dropout) {
  const torch::Tensor keys = for_query_heads(key, heads, key_heads), values = for_query_heads(value, heads, key_heads);
  if (dropout.is_training() && dropout.p() > 0) return with_dropout(query, keys, values, heads, options, dropout);
  std::optional<torch::Tensor> mask;
  const std::int64_t queries = query.size(2), seen = keys.size(2);
  if (options.keep.defined())
    mask = additive_mask(options, query);
  else if (options.causal && queries > 1 && seen > queries)
    mask = seen_keys(queries, seen, torch::TensorOptions(torch::kBool).device(query.device()));
  return at::scaled_dot_product_attention(query, keys, values, mask, 0.0, options.causal && !mask && seen == queries);
}

}  // namespace

torch::Tensor attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                        const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                        const DropoutImpl& dropout) {
  if (options.cache) {
    const auto [keys, values] = options.cache->append(key, value);
    return core(query, keys, values, heads, key_heads, options, dropout);
  }
  if (!recomputes_attention()) return core(query, key, value, heads, key_heads, options, dropout);
  // The module outlives the graph, as its parameters do.
  return recompute(
      [=, &dropout](const std::vector<torch::Tensor>& parts) {
        return core(parts[0], parts[1], parts[2], heads, key_heads, options, dropout);
      },
      {query, key, value});
}

torch::Tensor kept_tokens(const torch::Tensor& attention_mask) {
  if (!attention_mask.defined()) return {};
  const torch::Tensor keep = attention_mask != 0;
  return keep.all().item<bool>() ? torch::Tensor() : keep;
}

torch::Tensor split_heads(const torch::Tensor& features, std::int64_t heads) {
  return features.view({features.size(0), features.size(1), heads, features.size(2) / heads}).transpose(1, 2);
}

torch::Tensor merge_heads(const torch::Tensor& heads) {
  return heads.transpose(1, 2).reshape({heads.size(0), heads.size(2), heads.size(1) * heads.size(3)});
}

}  // namespace gantry::nn
