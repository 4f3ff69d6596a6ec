#include <algorithm>
#include <limits>
#include <numeric>

#include "gantry/nn/attention_block.h"
#include "gantry/nn/attention_scores.h"
#include "gantry/nn/context_attention.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

constexpr double kUnseen = -std::numeric_limits<double>::infinity();

// The number of the places, which ascend, that the token at `place` or a later token can see.
std::int64_t in_sight(const std::vector<std::int64_t>& places, std::int64_t place, std::int64_t window) {
  if (window == 0) return static_cast<std::int64_t>(places.size());
  return places.end() - std::upper_bound(places.begin(), places.end(), place - window);
}

torch::Tensor index_of(const std::vector<std::int64_t>& places, const torch::Tensor& like) {
  return torch::tensor(places, torch::kInt64).to(like.device());
}

// The exchange of a prompt's tokens after which each token is on the rank of its position modulo the number
// of ranks.
struct Spread {
  std::vector<std::int64_t> order;   // indices of this rank's tokens, ordered by target rank
  std::vector<std::int64_t> places;  // positions of the received tokens, ordered by source rank
  Sizes sent, received;              // numbers of tokens per rank
};

Spread spread_of(const SequencePart& part, std::int64_t first) {
  const int ranks = part.group->size(), rank = part.group->rank();
  Spread spread;
  const auto own = part.shard.places(rank);
  for (int other = 0; other < ranks; ++other) {
    const std::size_t sent = spread.order.size(), received = spread.places.size();
    for (std::size_t i = 0; i < own.size(); ++i)
      if (own[i] >= first && own[i] % ranks == other) spread.order.push_back(static_cast<std::int64_t>(i));
    for (const std::int64_t place : part.shard.places(other))
      if (place >= first && place % ranks == rank) spread.places.push_back(place);
    spread.sent.push_back(static_cast<std::int64_t>(spread.order.size() - sent));
    spread.received.push_back(static_cast<std::int64_t>(spread.places.size() - received));
  }
  return spread;
}

// Exchanges the ranks' parts [samples, heads, tokens, size] of a prompt. Returns the tokens that this rank
// keeps, in order, from position `first` on.
torch::Tensor spread_tokens(const torch::Tensor& given, const SequencePart& part, std::int64_t first) {
  const Spread spread = spread_of(part, first);
  const torch::Tensor in = given.index_select(2, index_of(spread.order, given)).transpose(0, 2).contiguous();
  const auto count = static_cast<std::int64_t>(spread.places.size());
  torch::Tensor out = torch::empty({count, in.size(1), in.size(2), in.size(3)}, in.options());
  part.group->all_to_all(out, in, spread.received, spread.sent).wait();
  std::vector<std::int64_t> ascending(spread.places.size());
  std::iota(ascending.begin(), ascending.end(), 0);
  std::sort(ascending.begin(), ascending.end(), [&](auto a, auto b) { return spread.places[a] < spread.places[b]; });
  return out.index_select(0, index_of(ascending, out)).transpose(0, 2);
}

// Stores the tokens of a prompt that the next token sees.
void keep_prompt(const torch::Tensor& key, const torch::Tensor& value, const AttentionOptions& options) {
  const SequencePart& part = *options.sequence;
  const std::int64_t first = options.window > 0 ? part.shard.tokens - options.window + 1 : 0;
  const torch::Tensor both = spread_tokens(torch::cat({key, value}, 3), part, first);
  if (both.size(2) == 0) return;
  // This rank's share of the window.
  const std::int64_t share = (options.window + part.group->size() - 1) / part.group->size();
  options.cache->append(both.narrow(3, 0, key.size(3)), both.narrow(3, key.size(3), value.size(3)), share);
}

// Whether each of this rank's last `count` keys counts for each of `queries` new tokens; undefined: all do.
torch::Tensor seen_cached(const CachedTokens& cached, std::int64_t queries, std::int64_t count,
                          const AttentionOptions& options) {
  const std::int64_t before = cached.columns.size(0) - count, window = options.window;
  torch::Tensor seen;
  if (cached.keep.defined()) seen = cached.keep.narrow(1, before, count).unsqueeze(1).unsqueeze(1);
  const torch::Tensor columns = cached.columns.narrow(0, before, count);
  if (const torch::Tensor& chunks = options.sequence->documents; chunks.defined()) {
    const torch::Tensor own =
        (chunks.narrow(1, cached.first, queries).unsqueeze(2) == chunks.index_select(1, columns).unsqueeze(1))
            .unsqueeze(1);
    seen = seen.defined() ? seen & own : own;
  }
  if (queries == 1 || !options.causal) return seen;  // the last token sees all of these keys
  const torch::Tensor rows = torch::arange(cached.first, cached.first + queries, columns.options()).view({-1, 1});
  torch::Tensor by_place = columns <= rows;
  if (window > 0) by_place = by_place & (columns > rows - window);
  return seen.defined() ? seen & by_place : by_place;
}

// Attention of new tokens to these keys, which are the last ones of this rank.
AttentionSums attend_cached(const torch::Tensor& query, const torch::Tensor& keys, const torch::Tensor& values,
                            const ByKeyHead& by, const AttentionOptions& options, const CachedTokens& cached) {
  const std::int64_t count = keys.size(2);
  const torch::ScalarType type = at::promote_types(query.scalar_type(), torch::kFloat32);
  const torch::Tensor columns = cached.columns.narrow(0, cached.columns.size(0) - count, count);
  AttentionOptions of_columns = options;
  if (options.bias.defined()) of_columns.bias = options.bias.index_select(2, columns);
  torch::Tensor scores = scores_of(query.to(type), keys.to(type), by, of_columns, columns).values;
  if (const torch::Tensor seen = seen_cached(cached, query.size(2), count, options); seen.defined())
    scores = scores.masked_fill(~seen, kUnseen);
  const torch::Tensor lse = scores.logsumexp(-1);
  const torch::Tensor weights = (scores - lse.masked_fill(lse == kUnseen, 0).unsqueeze(-1)).exp();
  return {by.product(weights, values.to(type)), lse};
}

// Attention of new tokens to the tokens of their own text that this rank keeps, which can include some of the
// new ones.
AttentionSums attend_own(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                         const ByKeyHead& by, const AttentionOptions& options) {
  const CachedTokens& cached = *options.sequence->cached;
  const std::int64_t added = cached.kept.size(0), seen = in_sight(cached.places, cached.first, options.window);
  if (seen == 0) return empty_sums(query, value.size(3));
  const auto append = [&] {
    return options.cache->append(key.index_select(2, cached.kept), value.index_select(2, cached.kept),
                                 options.window > 0 ? seen - added + 1 : 0);
  };
  const auto [keys, values] = options.cache_has_keys ? options.cache->kept() : append();
  return attend_cached(query, keys, values, by, options, cached);
}

// Cross-attention of new tokens to this rank's part of the text that they read. Its keys are passed once,
// with the first new tokens.
AttentionSums attend_read(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                          const ByKeyHead& by, const AttentionOptions& options) {
  const SequencePart& read = *options.sequence->read;
  const auto [keys, values] = options.cache->append(key, value, 0);
  CachedTokens all{.places = {}, .kept = {}, .columns = read.positions.view({-1}), .keep = {}};
  if (read.keep.defined()) all.keep = read.keep.index_select(1, all.columns);
  return attend_cached(query, keys, values, by, options, all);
}

// Merges the results for all ranks' keys, in rank order. 0 for padding, which may see no key. Sinks are added
// once.
torch::Tensor merged(const AttentionSums& mine, const torch::Tensor& sinks, ProcessGroup& group) {
  const std::int64_t size = mine.out.size(3);
  const torch::Tensor all = all_gather_along(group, torch::cat({mine.out, mine.lse.unsqueeze(-1)}, 3).unsqueeze(0), 0,
                                             Sizes(group.size(), 1));
  const torch::Tensor lse = all.select(4, size);
  torch::Tensor total = lse.logsumexp(0);
  if (sinks.defined()) total = at::logaddexp(total, sinks.to(total.scalar_type()).view({1, -1, 1}));
  torch::Tensor weights = (lse - total.masked_fill(total == kUnseen, 0)).exp();
  return (all.narrow(4, 0, size) * weights.unsqueeze(-1)).sum(0);
}

}  // namespace

torch::Tensor continued_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                  const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                                  const DropoutImpl& dropout) {
  const SequencePart& part = *options.sequence;
  if (!part.cached) {
    if (!options.cache_has_keys) keep_prompt(key, value, options);
    return context_attention(query, key, value, heads, key_heads, options, dropout);
  }
  const ByKeyHead by(heads, key_heads);
  const AttentionSums mine =
      part.read ? attend_read(query, key, value, by, options) : attend_own(query, key, value, by, options);
  return merged(mine, options.sinks, *part.group).to(query.scalar_type());
}

}  // namespace gantry::nn
