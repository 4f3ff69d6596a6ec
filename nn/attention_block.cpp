#include "gantry/nn/attention_block.h"

#include <algorithm>
#include <limits>

#include "gantry/nn/attention_scores.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

torch::ScalarType wide(const torch::Tensor& tensor) { return at::promote_types(tensor.scalar_type(), torch::kFloat32); }

// The tensors of one tile of a block.
KernelCall call_of(const AttentionBlock& block, const AttentionTile& tile, const BlockRules& rules,
                   const ByKeyHead& by) {
  return {.query = block.query.narrow(2, tile.queries.begin, tile.queries.size()),
          .key = block.key.narrow(2, tile.keys.begin, tile.keys.size()),
          .value = block.value.narrow(2, tile.keys.begin, tile.keys.size()),
          .by = by,
          .scale = scale_of_scores(rules.options, block.query),
          .causal = tile.kind == AttentionTile::Kind::kCausal};
}

// The same for plain products, in float32 or wider, with the positions of its queries and keys in the
// sequence.
struct PlainTile {
  torch::Tensor query, key, value;
  const ByKeyHead& by;
  AttentionTile::Kind kind;
  std::vector<Range> query_runs, key_runs;
  Range rows;  // the queries, by index among those of the rank
};

PlainTile plain_tile_of(const AttentionBlock& block, const AttentionTile& tile, const BlockRules& rules,
                        const ByKeyHead& by) {
  const KernelCall call = call_of(block, tile, rules, by);
  const SequencePart& part = *rules.options.sequence;
  const torch::ScalarType type = wide(block.query);
  return {call.query.to(type),
          call.key.to(type),
          call.value.to(type),
          by,
          tile.kind,
          runs_within(part.runs(), tile.queries),
          runs_within(part.keys().shard.runs(block.from), tile.keys),
          tile.queries};
}

// A kernel returns the log-sum-exp, and its backward takes the one of all blocks. It supports no mask except
// the causal one.
KernelChoice choose_kernel(const AttentionBlock& block, const AttentionTile& tile, const BlockRules& rules,
                           const ByKeyHead& by) {
  const SequencePart& part = *rules.options.sequence;
  if (tile.kind == AttentionTile::Kind::kMasked || needs_plain_products(rules.options, rules.drop > 0) ||
      part.keep.defined() || part.documents.defined())
    return {};
  return choose_kernel(call_of(block, tile, rules, by));
}

bool is_plain(const KernelChoice& choice) { return choice.kernel == KernelChoice::Kernel::kPlain; }

// Number of queries that plain products take at a time, because they need memory for all pairs of query and
// key.
constexpr std::int64_t kMostPlainQueries = 256;

void add_rows_of(std::vector<AttentionTile>& tiles, const AttentionTile& tile) {
  const std::int64_t end = tile.queries.end;
  for (std::int64_t begin = tile.queries.begin; begin < end; begin += kMostPlainQueries) {
    AttentionTile rows = tile;
    rows.queries = {begin, std::min(begin + kMostPlainQueries, end)};
    // Up to the diagonal: the last of these queries sees no further.
    if (tile.kind == AttentionTile::Kind::kCausal) rows.keys.end -= end - rows.queries.end;
    tiles.push_back(rows);
  }
}

std::vector<AttentionTile> tiles_of(const AttentionBlock& block, const BlockRules& rules, const ByKeyHead& by) {
  const SequencePart& part = *rules.options.sequence;
  // Queries that see no key at all average all keys, including later ones.
  const bool by_place = !part.keep.defined();
  std::vector<AttentionTile> tiles;
  for (const AttentionTile& tile :
       attention_tiles(part.runs(), part.keys().shard.runs(block.from), by_place && rules.options.causal,
                       by_place ? rules.options.window : 0)) {
    if (is_plain(choose_kernel(block, tile, rules, by)))
      add_rows_of(tiles, tile);
    else
      tiles.push_back(tile);
  }
  return tiles;
}

torch::Tensor places_of(const std::vector<Range>& runs, const torch::Device& device) {
  std::vector<torch::Tensor> places;
  for (const Range& run : runs)
    places.push_back(torch::arange(run.begin, run.end, torch::TensorOptions(torch::kInt64).device(device)));
  return torch::cat(places);
}

// Whether queries at positions `rows` see keys at positions `columns`: bool, broadcast over samples and
// heads; undefined: all.
torch::Tensor allowed(const torch::Tensor& rows, const torch::Tensor& columns, const BlockRules& rules) {
  const SequencePart& part = *rules.options.sequence;
  const torch::Tensor queries = rows.view({-1, 1});
  torch::Tensor sees;
  const auto narrow = [&](const torch::Tensor& more) { sees = sees.defined() ? sees & more : more; };
  if (rules.options.causal) narrow(columns <= queries);
  if (rules.options.window > 0) narrow(columns > queries - rules.options.window);
  if (rules.options.window > 0 && !rules.options.causal) narrow(columns < queries + rules.options.window);
  if (part.documents.defined())
    narrow((part.documents.index_select(1, rows).unsqueeze(2) == part.documents.index_select(1, columns).unsqueeze(1))
               .unsqueeze(1));
  if (part.keep.defined()) narrow(part.keep.index_select(1, columns).unsqueeze(1).unsqueeze(1));
  return sees;
}

// The scores of one tile, -inf for keys that a query does not see, and the tensors that their gradient needs.
struct TileScores : Scores {
  torch::Tensor lost;  // bool, queries that see no key of the sequence, whose scores are all 0; undefined: none
};

TileScores scores_of(const PlainTile& tile, const BlockRules& rules) {
  const AttentionOptions& options = rules.options;
  const torch::Device device = tile.query.device();
  const torch::Tensor rows = places_of(tile.query_runs, device), columns = places_of(tile.key_runs, device);
  AttentionOptions of_tile = options;
  if (options.bias.defined())
    of_tile.bias = options.bias.narrow(1, tile.rows.begin, tile.rows.size()).index_select(2, columns);
  TileScores scores{scores_of(tile.query, tile.key, tile.by, of_tile, columns), {}};
  const SequencePart& part = *options.sequence;
  if (tile.kind == AttentionTile::Kind::kFull && !part.documents.defined() && !part.keep.defined()) return scores;
  if (const torch::Tensor sees = allowed(rows, columns, rules); sees.defined())
    scores.values = scores.values.masked_fill(~sees, kNothing);
  if (!part.keep.defined() || options.sinks.defined()) return scores;
  scores.lost =
      ~allowed(rows, torch::arange(part.keys().shard.tokens, rows.options()), rules).any(-1, /*keepdim=*/true);
  scores.values = scores.values.masked_fill(scores.lost, 0);
  return scores;
}

// exp(scores - log-sum-exp), 0 for keys that a query does not see.
torch::Tensor block_weights(const torch::Tensor& scores, const torch::Tensor& lse) {
  return (scores - lse.masked_fill(lse == kNothing, 0).unsqueeze(-1)).exp();
}

// The dropout mask of the tile's weights, the same as for one tensor over the full sequence; undefined: none.
torch::Tensor left_of(const torch::Tensor& weights, const PlainTile& tile, const BlockRules& rules) {
  if (rules.drop == 0) return {};
  const SequencePart& part = *rules.options.sequence;
  std::vector<torch::Tensor> rows;
  std::int64_t row = 0;
  for (const Range& queries : tile.query_runs) {
    std::vector<torch::Tensor> columns;
    std::int64_t column = 0;
    for (const Range& keys : tile.key_runs) {
      columns.push_back(dropout_mask(weights.narrow(2, row, queries.size()).narrow(3, column, keys.size()), rules.drop,
                                     rules.dropout_name, rules.random,
                                     {rules.random.first_sample, rules.heads.first, queries.begin, keys.begin},
                                     {0, rules.heads.total, part.shard.tokens, part.keys().shard.tokens}));
      column += keys.size();
    }
    rows.push_back(torch::cat(columns, 3));
    row += queries.size();
  }
  return torch::cat(rows, 2);
}

AttentionSums attend_plainly(const PlainTile& tile, const BlockRules& rules) {
  const TileScores scores = scores_of(tile, rules);
  const torch::Tensor lse = scores.values.logsumexp(-1);
  torch::Tensor weights = block_weights(scores.values, lse);
  if (const torch::Tensor left = left_of(weights, tile, rules); left.defined()) weights = weights * left;
  return {tile.by.product(weights, tile.value), lse};
}

AttentionGradients plain_gradients(const AttentionSums& sums, const SumsGradient& gradient, const PlainTile& tile,
                                   const BlockRules& rules, const torch::Tensor& of_bias) {
  const TileScores scores = scores_of(tile, rules);
  torch::Tensor weights = block_weights(scores.values, sums.lse);
  torch::Tensor of_weights = tile.by.product(gradient.out, tile.value.transpose(-2, -1)), used = weights;
  if (const torch::Tensor left = left_of(weights, tile, rules); left.defined()) {
    of_weights = of_weights * left;
    used = weights * left;
  }
  torch::Tensor of_scores = weights * (of_weights - gradient.own.unsqueeze(-1));
  if (scores.lost.defined()) of_scores = of_scores.masked_fill(scores.lost, 0);
  if (scores.bent.defined()) of_scores = of_scores * (1 - scores.bent * scores.bent);
  if (of_bias.defined())
    of_bias.narrow(1, tile.rows.begin, tile.rows.size())
        .index_add_(2, places_of(tile.key_runs, of_bias.device()), of_scores.sum(0));
  of_scores = of_scores * scale_of_scores(rules.options, tile.query);
  return {tile.by.product(of_scores, tile.key), tile.by.turned_product(of_scores, tile.query),
          tile.by.turned_product(used, gradient.out)};
}

// Merges more results into the sums of some queries. A query that has seen no key yet keeps 0 and -inf.
void merge(const AttentionSums& sums, const AttentionSums& more) {
  const torch::Tensor largest = torch::maximum(sums.lse, more.lse);
  const torch::Tensor safe = largest.masked_fill(largest == kNothing, 0);
  const torch::Tensor before = (sums.lse - safe).exp(), added = (more.lse - safe).exp();
  const torch::Tensor all = before + added;
  const torch::Tensor total = all.masked_fill(all == 0, 1);
  sums.out.mul_((before / total).unsqueeze(-1))
      .add_(more.out.to(sums.out.scalar_type()) * (added / total).unsqueeze(-1));
  sums.lse.copy_(safe + all.log());
}

AttentionSums narrowed(const AttentionSums& sums, const Range& queries) {
  return {sums.out.narrow(2, queries.begin, queries.size()), sums.lse.narrow(2, queries.begin, queries.size())};
}

}  // namespace

AttentionSums empty_sums(const torch::Tensor& query, std::int64_t value_size) {
  const auto options = query.options().dtype(wide(query)).requires_grad(false);
  return {torch::zeros({query.size(0), query.size(1), query.size(2), value_size}, options),
          torch::full({query.size(0), query.size(1), query.size(2)}, kNothing, options)};
}

void attend_block(AttentionSums& sums, const AttentionBlock& block, const BlockRules& rules) {
  const ByKeyHead by(rules.heads, rules.key_heads);
  for (const AttentionTile& tile : tiles_of(block, rules, by)) {
    const KernelChoice choice = choose_kernel(block, tile, rules, by);
    merge(narrowed(sums, tile.queries), is_plain(choice) ? attend_plainly(plain_tile_of(block, tile, rules, by), rules)
                                                         : kernel_forward(choice, call_of(block, tile, rules, by)));
  }
}

AttentionGradients block_gradients(const AttentionSums& sums, const SumsGradient& gradient, const AttentionBlock& block,
                                   const BlockRules& rules, const torch::Tensor& of_bias) {
  const auto zeros = [](const torch::Tensor& like) {
    return torch::zeros_like(like, like.options().dtype(wide(like)));
  };
  AttentionGradients made{zeros(block.query), zeros(block.key), zeros(block.value)};
  const ByKeyHead by(rules.heads, rules.key_heads);
  for (const AttentionTile& tile : tiles_of(block, rules, by)) {
    const auto& [queries, keys, kind] = tile;
    const AttentionSums of_all = narrowed(sums, queries);
    const SumsGradient of_tile{gradient.out.narrow(2, queries.begin, queries.size()),
                               gradient.own.narrow(2, queries.begin, queries.size())};
    const KernelChoice choice = choose_kernel(block, tile, rules, by);
    const AttentionGradients found =
        is_plain(choice) ? plain_gradients(of_all, of_tile, plain_tile_of(block, tile, rules, by), rules, of_bias)
                         : kernel_backward(choice, call_of(block, tile, rules, by), of_all, of_tile.out);
    made.query.narrow(2, queries.begin, queries.size()).add_(found.query);
    made.key.narrow(2, keys.begin, keys.size()).add_(found.key);
    made.value.narrow(2, keys.begin, keys.size()).add_(found.value);
  }
  return made;
}

}  // namespace gantry::nn
