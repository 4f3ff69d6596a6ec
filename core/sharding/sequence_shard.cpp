#include "gantry/core/sharding/sequence_shard.h"

#include <algorithm>
#include <numeric>

namespace gantry {

const char* name_of(SequenceLayout layout) { return layout == SequenceLayout::kZigzag ? "zigzag" : "contiguous"; }

std::vector<Range> SequenceShard::runs(int rank) const {
  std::vector<Range> runs;
  if (together > 1) {
    runs = SequenceShard{tokens, ranks / together, layout}.runs(rank / together);
    std::int64_t held = 0;
    for (const Range& run : runs) held += run.size();
    return runs_within(runs, partition(held, 1, together, /*allow_empty=*/true)[rank % together]);
  }
  if (layout == SequenceLayout::kZigzag) {
    const auto chunks = partition(tokens, 1, 2 * ranks, /*allow_empty=*/true);
    runs = {chunks[rank], chunks[2 * ranks - 1 - rank]};
  } else {
    runs = {partition(tokens, 1, ranks, /*allow_empty=*/true)[rank]};
  }
  std::erase_if(runs, [](const Range& run) { return run.size() == 0; });
  if (runs.size() == 2 && runs[0].end == runs[1].begin) runs = {{runs[0].begin, runs[1].end}};
  return runs;
}

std::int64_t SequenceShard::size(int rank) const {
  std::int64_t size = 0;
  for (const Range& run : runs(rank)) size += run.size();
  return size;
}

std::vector<std::int64_t> SequenceShard::sizes() const {
  std::vector<std::int64_t> sizes;
  for (int rank = 0; rank < ranks; ++rank) sizes.push_back(size(rank));
  return sizes;
}

std::vector<std::int64_t> SequenceShard::places(int rank) const {
  std::vector<std::int64_t> places;
  for (const Range& run : runs(rank))
    for (std::int64_t place = run.begin; place < run.end; ++place) places.push_back(place);
  return places;
}

std::vector<std::int64_t> SequenceShard::permutation() const {
  std::vector<std::int64_t> all;
  for (int rank = 0; rank < ranks; ++rank)
    for (const std::int64_t place : places(rank)) all.push_back(place);
  return all;
}

std::vector<std::int64_t> SequenceShard::inverse() const {
  const auto places = permutation();
  std::vector<std::int64_t> inverse(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) inverse[places[i]] = static_cast<std::int64_t>(i);
  return inverse;
}

std::int64_t SequenceShard::causal_pairs(int rank) const {
  const auto all = places(rank);
  return std::accumulate(all.begin(), all.end(), static_cast<std::int64_t>(all.size()));
}

std::vector<Range> runs_within(const std::vector<Range>& runs, const Range& range) {
  std::vector<Range> within;
  std::int64_t first = 0;
  for (const Range& run : runs) {
    const std::int64_t begin = std::max(range.begin, first), end = std::min(range.end, first + run.size());
    if (begin < end) within.push_back({run.begin + begin - first, run.begin + end - first});
    first += run.size();
  }
  return within;
}

namespace {

using Kind = AttentionTile::Kind;

// With more runs than this, one tile with a mask is faster than multiplications of many small parts.
constexpr std::size_t kMostRuns = 4;

// Which keys of one run are visible to the queries of another run.
bool sees_any(const Range& queries, const Range& keys, bool causal, std::int64_t window) {
  if (causal && keys.begin >= queries.end) return false;
  if (!causal && window > 0 && keys.begin >= queries.end - 1 + window) return false;
  return window == 0 || keys.end > queries.begin - window + 1;
}

Kind kind_of(const Range& queries, const Range& keys, bool causal, std::int64_t window) {
  const bool reaches_back = window == 0 || keys.begin > queries.end - 1 - window;
  const bool reaches_on = causal || window == 0 || keys.end - 1 < queries.begin + window;
  const bool reaches_all = reaches_back && reaches_on;
  if (reaches_all && (!causal || keys.end - 1 <= queries.begin)) return Kind::kFull;
  return causal && reaches_all && queries == keys ? Kind::kCausal : Kind::kMasked;
}

// The runs in the order in which they are stored on a rank.
std::vector<Range> held(const std::vector<Range>& runs) {
  std::vector<Range> held;
  for (const Range& run : runs) {
    const std::int64_t begin = held.empty() ? 0 : held.back().end;
    held.push_back({begin, begin + run.size()});
  }
  return held;
}

// A fully visible tile that continues the last one along the queries or along the keys is merged with it.
void add(std::vector<AttentionTile>& tiles, const AttentionTile& tile) {
  if (!tiles.empty() && tile.kind == Kind::kFull && tiles.back().kind == Kind::kFull) {
    AttentionTile& last = tiles.back();
    if (last.keys == tile.keys && last.queries.end == tile.queries.begin) {
      last.queries.end = tile.queries.end;
      return;
    }
    if (last.queries == tile.queries && last.keys.end == tile.keys.begin) {
      last.keys.end = tile.keys.end;
      return;
    }
  }
  tiles.push_back(tile);
}

}  // namespace

std::vector<AttentionTile> attention_tiles(const std::vector<Range>& queries, const std::vector<Range>& keys,
                                           bool causal, std::int64_t window) {
  const auto held_queries = held(queries), held_keys = held(keys);
  if (queries.empty() || keys.empty()) return {};
  if (!causal && window == 0) return {{{0, held_queries.back().end}, {0, held_keys.back().end}, Kind::kFull}};
  if (queries.size() > kMostRuns || keys.size() > kMostRuns)
    return {{{0, held_queries.back().end}, {0, held_keys.back().end}, Kind::kMasked}};
  std::vector<AttentionTile> tiles;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    std::vector<AttentionTile> column;
    for (std::size_t q = 0; q < queries.size(); ++q)
      if (sees_any(queries[q], keys[k], causal, window))
        add(column, {held_queries[q], held_keys[k], kind_of(queries[q], keys[k], causal, window)});
    for (const AttentionTile& tile : column) add(tiles, tile);
  }
  return tiles;
}

}  // namespace gantry
