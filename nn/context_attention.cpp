#include "gantry/nn/context_attention.h"

#include "gantry/nn/attention_core.h"
#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

// The shards are contiguous, so the keys of all ranks are in order.
torch::Tensor all_gather_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                   const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                                   const DropoutImpl& dropout) {
  const SequencePart& part = *options.sequence;
  const std::int64_t size = key.size(3);
  const torch::Tensor both = gather_to_group(torch::cat({key, value}, 3), *part.group, 2, part.keys().shard.sizes());
  return attention_core(query, both.narrow(3, 0, size), both.narrow(3, size, value.size(3)), heads, key_heads, options,
                        dropout);
}

auto attention_by(ContextMethod method) {
  if (method == ContextMethod::kRing) return ring_attention;
  return method == ContextMethod::kAllGather ? all_gather_attention : ulysses_attention;
}

}  // namespace

ContextQueries context_queries(const SequencePart& part, const HeadRange& held) {
  if (part.cached) return {held, torch::arange(part.cached->first, part.shard.tokens, part.cached->columns.options())};
  if (part.method != ContextMethod::kUlysses && part.method != ContextMethod::kUlyssesRing)
    return {held, part.positions.view({-1})};
  const Range mine = partition(held.count, 1, part.exchanging->size(), true)[part.exchanging->rank()];
  const HeadRange heads{held.first + mine.begin, mine.size(), held.total};
  const auto integers = torch::TensorOptions(torch::kInt64).device(part.positions.device());
  if (!part.together) return {heads, torch::arange(part.shard.tokens, integers)};
  return {heads, torch::tensor(part.together->shard.places(part.together->group->rank()), integers)};
}

torch::Tensor context_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                                const DropoutImpl& dropout) {
  AttentionOptions full = options;
  full.keep = options.sequence->keep;
  full.documents = options.sequence->documents;
  return attention_by(options.sequence->method)(query, key, value, heads, key_heads, full, dropout);
}

}  // namespace gantry::nn
