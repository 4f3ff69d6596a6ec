#include "gantry/nn/attention.h"

#include <cmath>
#include <limits>

#include <torch/torch.h>

#include "gantry/nn/recompute.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/host_copy.h"

namespace gantry::nn {
namespace {

// Of each key head held here, all of its query heads are.
bool holds_whole_groups(const HeadRange& heads, const HeadRange& key_heads) {
  const std::int64_t group = heads.total / key_heads.total;
  return heads.first == key_heads.first * group && heads.count == key_heads.count * group;
}

// The key head of each query head held here, by index into the held ones.
torch::Tensor for_query_heads(const torch::Tensor& key, const HeadRange& heads, const HeadRange& key_heads) {
  const std::int64_t group = heads.total / key_heads.total;
  if (group == 1) return key;
  if (holds_whole_groups(heads, key_heads)) return key.repeat_interleave(group, 1);
  std::vector<std::int64_t> index;
  for (std::int64_t head = heads.first; head < heads.first + heads.count; ++head)
    index.push_back(head / group - key_heads.first);
  return key.index_select(1, torch::tensor(index, torch::TensorOptions(torch::kInt64).device(key.device())));
}

// Which of `keys` keys each of the last `queries` tokens sees: its own and those before it.
torch::Tensor seen_keys(std::int64_t queries, std::int64_t keys, const torch::TensorOptions& options) {
  return torch::ones({queries, keys}, options).tril(keys - queries);
}

// A mask by `make`, once for all layers of a forward.
template <class Make>
torch::Tensor once(const AttentionMasks::Wanted& wanted, Make make) {
  const auto& stage = forward_now().stage;
  return stage ? stage->masks().get(wanted, make) : make();
}

// True where some keys don't count for reasons of their own.
bool leaves_out_keys(const AttentionOptions& options) { return options.keep.defined() || options.documents.defined(); }

// Which keys count for which queries: bool, broadcast over heads; undefined where nothing is left out.
torch::Tensor counted_keys(const AttentionOptions& options, std::int64_t queries) {
  if (!leaves_out_keys(options)) return {};
  const torch::Tensor &keep = options.keep, &documents = options.documents;
  return once({AttentionMasks::Kind::kCounted, keep, documents, options.causal, queries, torch::kBool}, [&] {
    torch::Tensor counted;
    if (keep.defined()) counted = keep.unsqueeze(1).unsqueeze(1);
    if (documents.defined()) {
      const torch::Tensor own = (documents.unsqueeze(2) == documents.unsqueeze(1)).unsqueeze(1);
      counted = counted.defined() ? counted & own : own;
    }
    return options.causal && queries > 1 ? counted & seen_keys(queries, counted.size(-1), counted.options()) : counted;
  });
}

// The score of a key that does not count, as in Hugging Face's models. A query without any key then gives a mixture of
// all of them, not NaN; it is padding itself, so what it gives counts for nobody.
double lowest(torch::ScalarType type) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "attention",
                                         [] { return static_cast<double>(std::numeric_limits<scalar_t>::lowest()); });
}

// For the fused kernels, which add it to the scores in float32 or wider.
torch::Tensor additive_mask(const AttentionOptions& options, const torch::Tensor& query) {
  const std::int64_t queries = query.size(2);
  const torch::ScalarType type = query.scalar_type();
  return once({AttentionMasks::Kind::kAdditive, options.keep, options.documents, options.causal, queries, type}, [&] {
    const torch::Tensor counted = counted_keys(options, queries);
    return torch::zeros(counted.sizes(), query.options().requires_grad(false)).masked_fill(~counted, lowest(type));
  });
}

// Which of `tokens` keys lie behind each of as many queries.
torch::Tensor later_keys(std::int64_t tokens, torch::Device device) {
  return once({AttentionMasks::Kind::kLater, {}, {}, true, tokens, torch::kBool}, [&] {
    return torch::ones({tokens, tokens}, torch::TensorOptions(torch::kBool).device(device)).triu(1);
  });
}

torch::Tensor with_dropout(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                           const HeadRange& heads, const AttentionOptions& options, const DropoutImpl& dropout) {
  const std::int64_t tokens = query.size(2);
  torch::Tensor scores = at::matmul(query * (1 / std::sqrt(static_cast<double>(query.size(3)))), key.transpose(-2, -1));
  // Filled, not added: in float16 the sum with a score would be infinite.
  if (const torch::Tensor counted = counted_keys(options, tokens); counted.defined()) {
    scores = scores.masked_fill(~counted, lowest(scores.scalar_type()));
  } else if (options.causal) {
    scores = scores.masked_fill(later_keys(tokens, query.device()), -std::numeric_limits<double>::infinity());
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
  const bool drops = dropout.is_training() && dropout.p() > 0;
  // The fused kernels take each key head for its query heads, without a copy for each of those.
  const bool grouped = !drops && holds_whole_groups(heads, key_heads);
  const torch::Tensor keys = grouped ? key : for_query_heads(key, heads, key_heads),
                      values = grouped ? value : for_query_heads(value, heads, key_heads);
  if (drops) return with_dropout(query, keys, values, heads, options, dropout);
  std::optional<torch::Tensor> mask;
  const std::int64_t queries = query.size(2), seen = keys.size(2);
  if (leaves_out_keys(options))
    mask = additive_mask(options, query);
  else if (options.causal && queries > 1 && seen > queries)
    mask = seen_keys(queries, seen, torch::TensorOptions(torch::kBool).device(query.device()));
  return at::scaled_dot_product_attention(query, keys, values, mask, 0.0, options.causal && !mask && seen == queries,
                                          /*scale=*/std::nullopt, /*enable_gqa=*/grouped);
}

}  // namespace

torch::Tensor attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                        const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                        const DropoutImpl& dropout) {
  if (options.cache) {
    const auto [keys, values] = options.cache->append(key, value);
    return core(query, keys, values, heads, key_heads, options, dropout);
  }
  if (!forward_now().recomputes_attention) return core(query, key, value, heads, key_heads, options, dropout);
  // The module outlives the graph, as its parameters do.
  return recompute(
      [=, &dropout](const std::vector<torch::Tensor>& parts) {
        return core(parts[0], parts[1], parts[2], heads, key_heads, options, dropout);
      },
      {query, key, value});
}

torch::Tensor kept_tokens(const torch::Tensor& attention_mask) {
  if (!attention_mask.defined()) return {};
  const torch::Tensor known = on_host(attention_mask);
  if (known.defined() && number_of(known.all()) != 0) return {};
  return attention_mask != 0;
}

torch::Tensor split_heads(const torch::Tensor& features, std::int64_t heads) {
  return features.view({features.size(0), features.size(1), heads, features.size(2) / heads}).transpose(1, 2);
}

torch::Tensor merge_heads(const torch::Tensor& heads) {
  return heads.transpose(1, 2).reshape({heads.size(0), heads.size(2), heads.size(1) * heads.size(3)});
}

}  // namespace gantry::nn
