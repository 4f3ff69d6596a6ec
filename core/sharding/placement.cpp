#include "gantry/core/placement.h"

#include <algorithm>

#include "gantry/core/error.h"

namespace gantry {
namespace {

bool is_over(const ShardSpec& shard, const std::string& name) {
  return std::any_of(shard.axes.begin(), shard.axes.end(), [&](const Axis& axis) { return axis.name == name; });
}

AppliedShard applied(const ShardSpec& shard, std::vector<Range> ranges) {
  return {shard.dim, shard.row, std::move(ranges)};
}

// The extent of the dim of the shard in the local tensor, or its number of rows.
std::int64_t extent_of(const ShardSpec& shard, const Slice& left) {
  return shard.row > 0 ? left.elements() / shard.row : left.shape.at(shard.dim);
}

std::vector<Range> intersection(const std::vector<Range>& first, const std::vector<Range>& second) {
  std::vector<Range> common;
  for (const Range& a : first)
    for (const Range& b : second)
      if (const Range both{std::max(a.begin, b.begin), std::min(a.end, b.end)}; both.size() > 0) common.push_back(both);
  return common;
}

Slice intersection(const Slice& first, const Slice& second) {
  Slice common{.global = first.global, .shape = {0}, .boxes = {}, .flat = true};
  for (const Box& a : first.boxes)
    for (const Box& b : second.boxes) {
      Box both;
      for (std::size_t dim = 0; dim < a.dims.size(); ++dim) both.dims.push_back(intersection(a.dims[dim], b.dims[dim]));
      common.shape[0] += elements_of(both.shape());
      common.boxes.push_back(std::move(both));
    }
  return common;
}

// The part of the held ranges that is not on a lower rank of the axis.
std::vector<Range> owned_of(const ShardSpec& shard, const std::vector<Range>& held, const Coordinates& coordinates) {
  const int rank = shard.rank_of(coordinates);
  if (!shard.segments.empty()) return shard.owned(rank);
  return rank < shard.parts() ? held : std::vector<Range>();
}

// The elements of the local tensor that are not on a lower rank of an overlapping shard, as single runs.
std::vector<AppliedShard> owned_elements(const Placement& placement, const Coordinates& coordinates) {
  const auto held = held_shards(placement, coordinates);
  Slice owned = apply_shards(placement.global_shape, held);
  for (std::size_t i = 0; i < placement.shards.size(); ++i) {
    const ShardSpec& shard = placement.shards[i];
    if (!shard.overlaps()) continue;
    std::vector<AppliedShard> up_to(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(i));
    up_to.push_back(applied(shard, owned_of(shard, held[i].ranges, coordinates)));
    owned = intersection(owned, apply_shards(placement.global_shape, up_to));
  }
  AppliedShard runs{.dim = 0, .row = 1, .ranges = {}};
  visit_runs(owned, [&](std::int64_t first, std::int64_t count) { runs.ranges.push_back({first, first + count}); });
  return {runs};
}

}  // namespace

const ShardSpec& Placement::along(const std::string& axis) const {
  static const ShardSpec kReplicated;
  const auto found =
      std::find_if(shards.begin(), shards.end(), [&](const ShardSpec& shard) { return is_over(shard, axis); });
  return found == shards.end() ? kReplicated : *found;
}

bool Placement::overlaps() const {
  return std::any_of(shards.begin(), shards.end(), [](const ShardSpec& shard) { return shard.overlaps(); });
}

std::vector<std::string> Placement::sharded_axes() const {
  std::vector<std::string> axes;
  for (const ShardSpec& shard : shards)
    for (const auto& name : names_of(shard.axes))
      if (std::find(axes.begin(), axes.end(), name) == axes.end()) axes.push_back(name);
  return axes;
}

bool Placement::is_sharded_again(std::size_t i) const {
  return std::any_of(shards.begin() + static_cast<std::ptrdiff_t>(i) + 1, shards.end(),
                     [&](const ShardSpec& later) { return later.row > 0 || later.dim == shards[i].dim; });
}

Shape Placement::local_shape(const Coordinates& coordinates) const { return held_slice(*this, coordinates).shape; }

std::vector<std::string> Placement::gradient_axes(const std::vector<std::string>& batch_axes) const {
  std::vector<std::string> summed = partial_axes;
  for (const auto& axis : batch_axes)
    if (!along(axis).sharded() && std::find(summed.begin(), summed.end(), axis) == summed.end()) summed.push_back(axis);
  std::sort(summed.begin(), summed.end());
  return summed;
}

bool Placement::counted_by(const Coordinates& coordinates, const std::vector<int>& held_stages) const {
  const auto axes = sharded_axes();  // parameters shared by ranks of a pipeline are counted part by part
  const bool is_sharded_over_stages = std::any_of(axes.begin(), axes.end(), axis::is_pipeline);
  if (!stages.empty() && !is_sharded_over_stages &&
      std::find(held_stages.begin(), held_stages.end(), stages.front()) == held_stages.end())
    return false;
  for (const ShardSpec& shard : shards)  // another rank that holds the part counts it
    if (shard.repeat > 1 && shard.rank_of(coordinates) >= shard.parts()) return false;
  return std::all_of(coordinates.begin(), coordinates.end(), [&](const auto& coordinate) {
    const auto& [axis, place] = coordinate;
    return place == 0 || axis::is_pipeline(axis) || !axis::is_in(axis, view) || along(axis).sharded();
  });
}

std::vector<AppliedShard> held_shards(const Placement& placement, const Coordinates& coordinates) {
  std::vector<AppliedShard> shards;
  for (const ShardSpec& shard : placement.shards) {
    const std::int64_t extent =
        shard.segments.empty() ? extent_of(shard, apply_shards(placement.global_shape, shards)) : 0;
    shards.push_back(applied(shard, shard.ranges(shard.rank_of(coordinates), extent)));
  }
  return shards;
}

std::vector<AppliedShard> owned_shards(const Placement& placement, const Coordinates& coordinates) {
  auto shards = held_shards(placement, coordinates);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const ShardSpec& shard = placement.shards[i];
    if (!shard.overlaps()) continue;
    // Shards after this one would count the owned ranges differently from the held ones.
    if (placement.is_sharded_again(i)) return owned_elements(placement, coordinates);
    shards[i].ranges = owned_of(shard, shards[i].ranges, coordinates);
  }
  return shards;
}

Slice held_slice(const Placement& placement, const Coordinates& coordinates) {
  return apply_shards(placement.global_shape, held_shards(placement, coordinates));
}

Slice owned_slice(const Placement& placement, const Coordinates& coordinates) {
  return apply_shards(placement.global_shape, owned_shards(placement, coordinates));
}

}  // namespace gantry
