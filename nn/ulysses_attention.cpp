#include "gantry/nn/attention_core.h"
#include "gantry/nn/context_attention.h"
#include "gantry/nn/sequence_exchange.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

// Adjacent runs of these sizes, one for each rank.
std::vector<std::vector<Range>> in_sequence(const std::vector<std::int64_t>& sizes) {
  std::vector<std::vector<Range>> runs;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    runs.push_back({{begin, begin + size}});
    begin += size;
  }
  return runs;
}

// The exchange of [samples, heads, tokens, size]; rank i gets heads_of_rank[i], by index among the local heads.
std::shared_ptr<const SequenceExchange> exchange_of(const SequencePart& part, const std::vector<Range>& heads_of_rank,
                                                    std::int64_t heads) {
  auto made = std::make_shared<SequenceExchange>();
  made->group = part.exchanging;
  made->token_dim = 2;
  made->head_dim = 1;
  made->tokens = in_sequence(part.sizes_of_exchanging());
  for (const Range& range : heads_of_rank) made->heads.push_back({range});
  made->size = heads;
  return made;
}

// The KV heads that query heads [begin, end) use, by index among the KV heads of this rank.
Range keys_of(const Range& queries, const HeadRange& heads, const HeadRange& key_heads) {
  if (queries.size() == 0) return {0, 0};
  const std::int64_t group = heads.total / key_heads.total;
  return {(heads.first + queries.begin) / group - key_heads.first,
          (heads.first + queries.end - 1) / group - key_heads.first + 1};
}

HeadRange part_of(const HeadRange& heads, const Range& range) {
  return {heads.first + range.begin, range.size(), heads.total};
}

}  // namespace

torch::Tensor ulysses_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                                const DropoutImpl& dropout) {
  const SequencePart& part = *options.sequence;
  const int rank = part.exchanging->rank();
  const auto queries_of_rank = partition(heads.count, 1, part.exchanging->size(), true);
  std::vector<Range> keys_of_rank;
  for (const Range& range : queries_of_rank) keys_of_rank.push_back(keys_of(range, heads, key_heads));
  const auto of_queries = exchange_of(part, queries_of_rank, heads.count);
  const auto of_keys = exchange_of(part.keys(), keys_of_rank, key.size(1));
  const Range mine = queries_of_rank[rank], my_keys = keys_of_rank[rank];

  AttentionOptions full = options;  // its bias has the heads and queries that this rank receives
  full.sequence = part.together;
  for (torch::Tensor* of_heads : {&full.slopes, &full.sinks})
    if (of_heads->defined()) *of_heads = of_heads->narrow(0, mine.begin, mine.size());
  const torch::Tensor both = to_heads(torch::cat({key, value}, 3), of_keys);
  const auto attend = part.together ? ring_attention : attention_core;
  const torch::Tensor made =
      attend(to_heads(query, of_queries), both.narrow(3, 0, key.size(3)), both.narrow(3, key.size(3), value.size(3)),
             part_of(heads, mine), part_of(key_heads, my_keys), full, dropout);
  return to_tokens(made, of_queries);
}

}  // namespace gantry::nn
