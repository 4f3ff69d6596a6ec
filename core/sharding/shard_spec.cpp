#include "gantry/core/shard_spec.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// `range` without the elements of the ranges of lower ranks. Ranges are in order, so the result is contiguous.
Range without_lower(const Segment& segment, int rank) {
  Range range = segment.range_of_rank[rank];
  for (int lower = 0; lower < rank; ++lower) {
    const Range& other = segment.range_of_rank[lower];
    if (other.begin <= range.begin && other.end > range.begin) range.begin = std::min(other.end, range.end);
  }
  return range;
}

}  // namespace

std::vector<Range> ShardSpec::ranges(int rank) const {
  std::vector<Range> held;
  for (const auto& segment : segments) held.push_back(segment.range_of_rank.at(rank));
  return held;
}

std::vector<Range> ShardSpec::owned(int rank) const {
  std::vector<Range> own;
  for (const auto& segment : segments) own.push_back(without_lower(segment, rank));
  return own;
}

std::int64_t ShardSpec::local_size(int rank) const {
  std::int64_t size = 0;
  for (const auto& range : ranges(rank)) size += range.size();
  return size;
}

bool ShardSpec::overlaps() const {
  if (repeat > 1) return true;
  for (const auto& segment : segments)
    for (std::size_t rank = 0; rank < segment.range_of_rank.size(); ++rank)
      if (without_lower(segment, static_cast<int>(rank)) != segment.range_of_rank[rank]) return true;
  return false;
}

int ShardSpec::ranks() const {
  int ranks = 1;
  for (const auto& axis : axes) ranks *= axis.size;
  return ranks;
}

int ShardSpec::rank_of(const Coordinates& coordinates) const {
  int rank = 0;
  for (const auto& [name, size] : axes) {
    const auto found = coordinates.find(name);
    if (found == coordinates.end())
      throw InternalError({"a shard over " + name, "the rank has no coordinate on this axis", "", ""});
    rank = rank * size + found->second;
  }
  return rank;
}

std::vector<Range> ShardSpec::ranges(int rank, std::int64_t extent) const {
  if (!segments.empty() || !sharded()) return ranges(rank);
  return {partition(extent, 1, parts(), /*allow_empty=*/true).at(rank % parts())};
}

std::vector<Range> ShardSpec::owned(int rank, std::int64_t extent) const {
  if (!segments.empty()) return owned(rank);
  return rank < parts() ? ranges(rank, extent) : std::vector<Range>();
}

ShardSpec replicate() { return {}; }

std::vector<Range> partition(std::int64_t size, std::int64_t unit, int ranks, bool allow_empty) {
  if (unit < 1 || size % unit != 0)
    throw ConfigError({"", fmt::format("{} elements are not a whole number of units of {}", size, unit), "",
                       "choose a unit that divides the size"});
  const std::int64_t units = size / unit;
  if (!allow_empty && units == 0)
    throw ConfigError({"", "the sharded dimension has no elements", "the size of the full parameter",
                       "keep the size as a member when the module is built: on stages without the layer, the "
                       "parameter's own tensor is empty"});
  if (!allow_empty && units < ranks)
    throw ConfigError(
        {"",
         fmt::format("{} units (of {} elements) over {} ranks leave {} ranks empty", units, unit, ranks, ranks - units),
         fmt::format("at most {} ranks", units), ""});
  std::vector<Range> ranges;
  std::int64_t begin = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t count = (units / ranks + (rank < units % ranks ? 1 : 0)) * unit;
    ranges.push_back({begin, begin + count});
    begin += count;
  }
  return ranges;
}

namespace {

// The units that the users of each rank need.
std::vector<Range> partition_used_units(const Part& part, int ranks) {
  const std::int64_t units = part.unit > 0 && part.size % part.unit == 0 ? part.size / part.unit : 0;
  if (units < 1 || part.users % units != 0)
    throw ConfigError(
        {"", fmt::format("{} elements in units of {}, which {} users share", part.size, part.unit, part.users),
         "units that divide their users equally",
         "choose a number of KV heads that divides the number of query heads"});
  const std::int64_t group = part.users / units;
  std::vector<Range> ranges;
  for (const Range& users : partition(part.users, 1, ranks))
    ranges.push_back({users.begin / group * part.unit, (users.end + group - 1) / group * part.unit});
  return ranges;
}

}  // namespace

ShardSpec shard_parts(int dim, const std::vector<Part>& parts, int ranks) {
  ShardSpec shard{.axes = {}, .dim = dim, .segments = {}};
  std::int64_t offset = 0;
  for (const Part& part : parts) {
    Segment segment{{offset, offset + part.size},
                    part.users > 0 ? partition_used_units(part, ranks) : partition(part.size, part.unit, ranks)};
    for (auto& range : segment.range_of_rank) range.begin += offset, range.end += offset;
    shard.segments.push_back(std::move(segment));
    offset += part.size;
  }
  return shard;
}

ShardSpec shard(int dim, std::int64_t size, int ranks, int segments, std::int64_t unit) {
  if (segments < 1 || size % segments != 0)
    throw ConfigError({"", fmt::format("{} elements are not {} equal segments", size, segments), "",
                       "set the segments of the projection"});
  return shard_parts(dim, std::vector<Part>(segments, Part{.size = size / segments, .unit = unit}), ranks);
}

ShardSpec shard_groups(int dim, std::int64_t size, std::int64_t groups, std::int64_t unit, int ranks) {
  if (size % (groups * unit) != 0 || size / (groups * unit) < 3)
    throw ConfigError({"",
                       fmt::format("{} elements are not {} groups of query heads, a key head and a value head of {}",
                                   size, groups, unit),
                       "", "set the groups of the projection"});
  const std::int64_t queries = size / (groups * unit) - 2;  // number of query heads in a group
  const auto heads_of_rank = partition(queries * groups, 1, ranks);
  ShardSpec shard{.axes = {}, .dim = dim, .segments = {}};
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t begin = group * (queries + 2) * unit, keys = begin + queries * unit;
    Segment query{{begin, keys}, {}}, key{{keys, keys + unit}, {}}, value{{keys + unit, keys + 2 * unit}, {}};
    for (const Range& heads : heads_of_rank) {
      const std::int64_t first = std::clamp(heads.begin - group * queries, std::int64_t{0}, queries);
      const std::int64_t last = std::clamp(heads.end - group * queries, std::int64_t{0}, queries);
      query.range_of_rank.push_back({begin + first * unit, begin + last * unit});
      for (Segment* shared : {&key, &value}) {
        const std::int64_t edge = first == queries ? shared->extent.end : shared->extent.begin;
        shared->range_of_rank.push_back(last > first ? shared->extent : Range{edge, edge});
      }
    }
    for (Segment* segment : {&query, &key, &value}) shard.segments.push_back(std::move(*segment));
  }
  return shard;
}

ShardSpec shard_blocks(int dim, std::int64_t size, std::int64_t blocks, std::int64_t unit, int ranks) {
  if (size % (3 * blocks * unit) != 0)
    throw ConfigError({"",
                       fmt::format("{} elements are not {} blocks of query heads, value heads and key heads of {}",
                                   size, blocks, unit),
                       "", "set the blocks of the projection"});
  const std::int64_t heads = size / (3 * blocks * unit);  // in a block
  const auto heads_of_rank = partition(heads * blocks, 1, ranks);
  ShardSpec shard{.axes = {}, .dim = dim, .segments = {}};
  for (std::int64_t part = 0; part < 3 * blocks; ++part) {
    const std::int64_t begin = part * heads * unit, before = part / 3 * heads;
    Segment segment{{begin, begin + heads * unit}, {}};
    for (const Range& held : heads_of_rank)
      segment.range_of_rank.push_back({begin + std::clamp(held.begin - before, std::int64_t{0}, heads) * unit,
                                       begin + std::clamp(held.end - before, std::int64_t{0}, heads) * unit});
    shard.segments.push_back(std::move(segment));
  }
  return shard;
}

ShardSpec shard_rows(std::int64_t row, std::vector<Axis> axes) {
  return {.axes = std::move(axes), .dim = 0, .row = row, .segments = {}};
}

}  // namespace gantry
