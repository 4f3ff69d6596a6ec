#include "gantry/core/placement.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// `range` without the elements of any range before `rank`; ranges are partitioned in order, so what is left is
// contiguous.
Range without_lower(const Segment& segment, int rank) {
  Range range = segment.range_of_rank[rank];
  for (int lower = 0; lower < rank; ++lower) {
    const Range& other = segment.range_of_rank[lower];
    if (other.begin <= range.begin && other.end > range.begin) range.begin = std::min(other.end, range.end);
  }
  return range;
}

}  // namespace

std::vector<Range> AxisPlacement::ranges(int axis_rank) const {
  std::vector<Range> held;
  for (const auto& segment : segments) held.push_back(segment.range_of_rank.at(axis_rank));
  return held;
}

std::vector<Range> AxisPlacement::owned(int axis_rank) const {
  std::vector<Range> own;
  for (const auto& segment : segments) own.push_back(without_lower(segment, axis_rank));
  return own;
}

std::int64_t AxisPlacement::local_size(int axis_rank) const {
  std::int64_t size = 0;
  for (const auto& range : ranges(axis_rank)) size += range.size();
  return size;
}

bool AxisPlacement::overlaps() const {
  for (const auto& segment : segments)
    for (std::size_t rank = 0; rank < segment.range_of_rank.size(); ++rank)
      if (without_lower(segment, static_cast<int>(rank)) != segment.range_of_rank[rank]) return true;
  return false;
}

AxisPlacement replicate() { return {}; }

std::vector<Range> partition(std::int64_t size, std::int64_t unit, int ranks, bool allow_empty) {
  if (unit < 1 || size % unit != 0)
    throw ConfigError({"", fmt::format("{} elements are not a whole number of units of {}", size, unit), "",
                       "choose a unit that divides the size"});
  const std::int64_t units = size / unit;
  if (!allow_empty && units < ranks)
    throw ConfigError(
        {"",
         fmt::format("{} units (of {} elements) over {} ranks leave {} ranks empty", units, unit, ranks, ranks - units),
         fmt::format("at most {} ranks", units), fmt::format("use tensor {}", units)});
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

// The units that each rank's share of the users needs.
std::vector<Range> partition_used_units(const Part& part, int ranks) {
  const std::int64_t units = part.unit > 0 && part.size % part.unit == 0 ? part.size / part.unit : 0;
  if (units < 1 || part.users % units != 0)
    throw ConfigError(
        {"", fmt::format("{} elements in units of {}, which {} users share", part.size, part.unit, part.users),
         "units that divide their users equally", "choose as many key heads as divide the query heads"});
  const std::int64_t group = part.users / units;
  std::vector<Range> ranges;
  for (const Range& users : partition(part.users, 1, ranks))
    ranges.push_back({users.begin / group * part.unit, (users.end + group - 1) / group * part.unit});
  return ranges;
}

}  // namespace

AxisPlacement shard_parts(int dim, const std::vector<Part>& parts, int ranks) {
  AxisPlacement placement{.dim = dim, .segments = {}};
  std::int64_t offset = 0;
  for (const Part& part : parts) {
    Segment segment{{offset, offset + part.size},
                    part.users > 0 ? partition_used_units(part, ranks) : partition(part.size, part.unit, ranks)};
    for (auto& range : segment.range_of_rank) range.begin += offset, range.end += offset;
    placement.segments.push_back(std::move(segment));
    offset += part.size;
  }
  return placement;
}

AxisPlacement shard(int dim, std::int64_t size, int ranks, int segments, std::int64_t unit) {
  if (segments < 1 || size % segments != 0)
    throw ConfigError({"", fmt::format("{} elements are not {} equal segments", size, segments), "",
                       "state the segments that the projection has"});
  return shard_parts(dim, std::vector<Part>(segments, Part{.size = size / segments, .unit = unit}), ranks);
}

const AxisPlacement& Placement::along(const std::string& axis) const {
  static const AxisPlacement kReplicated;
  const auto found = axes.find(axis);
  return found == axes.end() ? kReplicated : found->second;
}

std::vector<std::int64_t> Placement::local_shape(const std::map<std::string, int>& coordinates) const {
  std::vector<std::int64_t> shape = global_shape;
  for (const auto& [axis, placement] : axes)
    if (placement.sharded()) shape[placement.dim] = placement.local_size(coordinates.at(axis));
  return shape;
}

std::vector<std::string> Placement::gradient_axes() const {
  std::vector<std::string> summed{"dp"};
  for (const auto& [axis, placement] : axes)
    if (placement.partial_gradient && axis != "dp") summed.push_back(axis);
  std::sort(summed.begin(), summed.end());
  return summed;
}

bool Placement::counted_by(const std::map<std::string, int>& coordinates, const std::vector<int>& held_stages) const {
  if (!stages.empty() && std::find(held_stages.begin(), held_stages.end(), stages.front()) == held_stages.end())
    return false;
  for (const auto& [axis, coordinate] : coordinates)
    if (axis != "pp" && coordinate != 0 && !along(axis).sharded()) return false;
  return true;
}

}  // namespace gantry
