// Properties of placements on every mesh of up to 64 ranks with axes of 1, 2, 3 and 5 ranks, compared with a
// simple implementation that moves single elements.
#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "gantry/core/mesh.h"
#include "gantry/core/placement.h"

namespace gantry {
namespace {

constexpr const char* kMadeUp = "xp";  // an axis that Gantry does not use; it shards layers

// The ids of the elements of a tensor that a rank holds.
struct Elements {
  Shape shape;
  std::vector<std::int64_t> ids;
  std::vector<bool> owned;
};

Elements all_of(const Shape& shape) {
  Elements all{shape, std::vector<std::int64_t>(elements_of(shape)), std::vector<bool>(elements_of(shape), true)};
  std::iota(all.ids.begin(), all.ids.end(), 0);
  return all;
}

bool is_in_any(std::int64_t index, const std::vector<Range>& ranges) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const Range& range) { return index >= range.begin && index < range.end; });
}

// Returns the elements that the rank keeps, index by index along the dimension.
Elements shard_by_hand(const Elements& left, const ShardSpec& shard, int rank) {
  Elements seen = left;
  if (shard.row > 0) seen.shape = {static_cast<std::int64_t>(left.ids.size()) / shard.row, shard.row};
  const std::int64_t extent = seen.shape[shard.dim];
  std::int64_t inner = 1, outer = 1;
  for (std::size_t i = 0; i < seen.shape.size(); ++i) {
    if (static_cast<int>(i) < shard.dim) outer *= seen.shape[i];
    if (static_cast<int>(i) > shard.dim) inner *= seen.shape[i];
  }
  std::vector<std::int64_t> kept;
  for (const Range& range : shard.ranges(rank, extent))
    for (std::int64_t index = range.begin; index < range.end; ++index) kept.push_back(index);
  Elements part{seen.shape, {}, {}};
  part.shape[shard.dim] = static_cast<std::int64_t>(kept.size());
  for (std::int64_t i = 0; i < outer; ++i)
    for (const std::int64_t index : kept) {
      bool is_lowest = true;
      for (int lower = 0; lower < rank; ++lower)
        is_lowest = is_lowest && !is_in_any(index, shard.ranges(lower, extent));
      for (std::int64_t j = 0; j < inner; ++j) {
        const std::int64_t at = (i * extent + index) * inner + j;
        part.ids.push_back(seen.ids[at]);
        part.owned.push_back(seen.owned[at] && is_lowest);
      }
    }
  return part;
}

Elements held_by_hand(const Placement& placement, const Coordinates& coordinates) {
  Elements left = all_of(placement.global_shape);
  for (const ShardSpec& shard : placement.shards) left = shard_by_hand(left, shard, shard.rank_of(coordinates));
  return left;
}

std::vector<std::int64_t> ids_of(const Slice& slice) {
  std::vector<std::int64_t> ids;
  visit_runs(slice, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) ids.push_back(first + i);
  });
  return ids;
}

std::int64_t place_in(const Shape& shape, const Shape& index) {
  std::int64_t place = 0;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) place = place * shape[dim] + index[dim];
  return place;
}

// Calls `take` for every element that is in both slices, with its position in the first and in the second
// slice.
void visit_common(const Slice& first, const Slice& second,
                  const std::function<void(std::int64_t, std::int64_t)>& take) {
  std::int64_t first_offset = 0;
  for (const Box& a : first.boxes) {
    std::int64_t second_offset = 0;
    for (const Box& b : second.boxes) {
      common_blocks(a, b, [&](const Block& in_a, const Block& in_b) {
        for (std::int64_t i = 0; i < elements_of(in_a.size); ++i) {
          Shape at_a = in_a.begin, at_b = in_b.begin;
          std::int64_t rest = i;
          for (std::size_t dim = in_a.size.size(); dim-- > 0; rest /= in_a.size[dim]) {
            at_a[dim] += rest % in_a.size[dim];
            at_b[dim] += rest % in_a.size[dim];
          }
          take(first_offset + place_in(a.shape(), at_a), second_offset + place_in(b.shape(), at_b));
        }
      });
      second_offset += elements_of(b.shape());
    }
    first_offset += elements_of(a.shape());
  }
}

ShardSpec over(ShardSpec shard, std::vector<Axis> axes) {
  shard.axes = std::move(axes);
  return shard;
}

// Returns placements of all kinds, for the given sizes of tp, of the made-up axis and of the batch axes.
std::vector<Placement> placements_for(const Axis& tensor, const Axis& other, const std::vector<Axis>& batch) {
  const auto placed = [](Shape shape, std::vector<ShardSpec> shards) {
    return Placement{
        .name = "w", .global_shape = std::move(shape), .shards = std::move(shards), .stages = {0}, .aliases = {}};
  };
  const ShardSpec columns = over(shard(0, 12, tensor.size, 2), {tensor});  // two segments; uneven over 5
  const ShardSpec rows = over(shard(1, 7, tensor.size), {tensor});
  const ShardSpec heads =
      over(shard_parts(0, {{.size = 4, .unit = 2, .users = 6}, {.size = 6}}, tensor.size), {tensor});
  std::vector<Placement> all{
      placed({5, 3}, {}),
      placed({}, {shard_rows(1, batch)}),
      placed({12, 5}, {columns}),
      placed({4, 7}, {rows}),
      placed({10, 3}, {heads}),
      placed({12, 7}, {columns, over(shard(1, 7, other.size), {other})}),       // two axes, two dims
      placed({12, 5}, {columns, {.axes = {other}, .dim = 0, .segments = {}}}),  // two axes, the same dim
      placed({10, 3}, {heads, {.axes = {other}, .dim = 0, .segments = {}}}),    // the same with shared heads
      placed({12, 5}, {columns, shard_rows(5, batch)}),                         // the rows of ZeRO 3
      placed({2, 3, 7}, {shard_rows(7, batch)}),                                // viewed as [6, 7]
      placed({4, 7}, {rows, shard_rows(1, batch)}),                             // the elements of ZeRO 1
      placed({10, 3}, {heads, shard_rows(3, batch)}),
      placed({2, 12, 3}, {over(shard(1, 12, tensor.size), {tensor}), shard_rows(1, batch)}),
      placed({3, 7}, {shard_rows(1, batch), shard_rows(1, {other})}),         // elements of an element shard
      placed({3}, {shard_rows(1, {batch.front()}), shard_rows(1, {other})}),  // more ranks than elements
  };
  return all;
}

// Checks one placement on one mesh, over all ranks.
void check(const Placement& placement, const Mesh& mesh) {
  std::vector<Coordinates> places;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    Coordinates place;
    for (const auto& axis : mesh.axes()) place[axis.name] = mesh.coordinate(rank, axis.name);
    places.push_back(place);
  }
  std::vector<Slice> held, owned;
  std::vector<int> norm(elements_of(placement.global_shape), 0), owners = norm;
  std::vector<Slice> written;  // slices that one replica writes
  for (const Coordinates& place : places) {
    const Elements expected = held_by_hand(placement, place);
    held.push_back(held_slice(placement, place));
    owned.push_back(owned_slice(placement, place));
    ASSERT_EQ(ids_of(held.back()), expected.ids);
    ASSERT_EQ(placement.local_shape(place), expected.shape);
    std::vector<std::int64_t> own;
    for (std::size_t i = 0; i < expected.ids.size(); ++i)
      if (expected.owned[i]) own.push_back(expected.ids[i]);
    ASSERT_EQ(ids_of(owned.back()), own);
    ASSERT_EQ(owned.back().elements(), static_cast<std::int64_t>(own.size()));
    const bool counts = placement.counted_by(place, {0});
    for (const std::int64_t id : own) norm[id] += counts;
    const bool first_replica = std::all_of(place.begin(), place.end(), [&](const auto& each) {
      return each.second == 0 || placement.along(each.first).sharded();
    });
    if (!first_replica) continue;
    written.push_back(owned.back());
    for (const std::int64_t id : own) ++owners[id];
  }
  EXPECT_EQ(norm, std::vector<int>(norm.size(), 1)) << "the norm's weights";
  EXPECT_EQ(owners, std::vector<int>(owners.size(), 1)) << "owners";
  const Covering covering = covering_of(placement.global_shape, written);
  EXPECT_TRUE(covering.is_known && !covering.has_hole && !covering.has_overlap) << "a checkpoint's slices";
  if (written.front().elements() > 0) {
    EXPECT_TRUE(covering_of(placement.global_shape, {written.begin() + 1, written.end()}).has_hole);
    written.push_back(written.front());
    EXPECT_TRUE(covering_of(placement.global_shape, written).has_overlap);
  }
  // A gradient is reduced over the ranks that hold the same elements and that together see the batch once.
  std::size_t parts_of_batch = 1;
  for (const auto& axis : mesh.batch_axes())
    if (!placement.along(axis).sharded()) parts_of_batch *= static_cast<std::size_t>(mesh.axis_size(axis));
  const auto summed = placement.gradient_axes(mesh.batch_axes());
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const auto peers = summed.empty() ? std::vector<int>{rank} : mesh.ranks_along(rank, summed);
    EXPECT_EQ(peers.size(), parts_of_batch);
    for (const int peer : peers) EXPECT_EQ(held[peer], held[rank]);
  }
  // The inverse: every element of the first rank's slice comes from exactly one owner.
  const Slice target = held.front();
  const auto wanted = ids_of(target);
  std::vector<std::int64_t> filled(wanted.size(), -1);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (std::any_of(places[rank].begin(), places[rank].end(),
                    [&](const auto& each) { return each.second != 0 && !placement.along(each.first).sharded(); }))
      continue;
    const auto ids = ids_of(owned[rank]);
    bool any = false;
    visit_common(target, owned[rank], [&](std::int64_t here, std::int64_t there) {
      EXPECT_EQ(filled[here], -1) << "filled twice";
      filled[here] = ids[there];
      any = true;
    });
    EXPECT_EQ(have_common(target, owned[rank]), any);
  }
  EXPECT_EQ(filled, wanted);
}

TEST(PlacementProperty, HoldsOnEveryMeshOfUpTo64Ranks) {
  int checked = 0;
  for (const int data : {1, 2, 3, 5})
    for (const int context : {1, 2, 3})
      for (const int other : {1, 2, 3, 5})
        for (const int tensor : {1, 2, 3, 5}) {
          if (data * context * other * tensor > 64) continue;
          const std::vector<Axis> batch{{axis::kData, data}, {axis::kContext, context}};
          const Mesh mesh({batch[0], batch[1], {kMadeUp, other}, {axis::kTensor, tensor}});
          int kind = 0;
          for (const auto& placement : placements_for({axis::kTensor, tensor}, {kMadeUp, other}, batch)) {
            SCOPED_TRACE(::testing::Message() << mesh.describe() << ", placement " << kind++);
            check(placement, mesh);
            if (::testing::Test::HasFatalFailure()) return;
            ++checked;
          }
        }
  EXPECT_GT(checked, 1500);
}

// The gradient of every element is reduced over exactly the ranks that have a part of it.
TEST(PlacementProperty, GradientsAreSummedOverTheBatchAxesThatDoNotShardAndWhereTheyArePartial) {
  const Axis data{axis::kData, 2}, context{axis::kContext, 3}, tensor{axis::kTensor, 2};
  const Mesh mesh({data, context, tensor});
  Placement placement{.name = "w", .global_shape = {4, 3}, .shards = {}, .stages = {0}, .aliases = {}};
  using Axes = std::vector<std::string>;
  EXPECT_EQ(placement.gradient_axes(mesh.batch_axes()), (Axes{"cp", "dp"}));
  placement.partial_axes = {axis::kTensor};
  EXPECT_EQ(placement.gradient_axes(mesh.batch_axes()), (Axes{"cp", "dp", "tp"}));
  placement.shards = {shard_rows(3, {context})};
  EXPECT_EQ(placement.gradient_axes(mesh.batch_axes()), (Axes{"dp", "tp"}));
  placement.shards = {shard_rows(3, {data, context})};
  EXPECT_EQ(placement.gradient_axes(mesh.batch_axes()), (Axes{"tp"}));
  placement = {.name = "e", .global_shape = {4, 3}, .shards = {}, .stages = {0}, .aliases = {}};
  placement.view = axis::View::kExpert;
  const Mesh experts({data, context, tensor}, 4);
  EXPECT_EQ(placement.gradient_axes(experts.batch_axes(placement.view)), (Axes{"edp"}));
  EXPECT_EQ(placement.gradient_axes(mesh.batch_axes(placement.view)), (Axes{"cp", "dp"}));  // the dense view
}

TEST(PlacementProperty, AShardOfAMissingDimIsRejected) {
  EXPECT_THROW(apply_shards({4, 3}, {{.dim = 2, .ranges = {{0, 1}}}}), std::exception);
  EXPECT_THROW(apply_shards({4, 3}, {{.dim = 0, .ranges = {{3, 5}}}}), std::exception);
  EXPECT_THROW(apply_shards({4, 3}, {{.dim = 0, .ranges = {{2, 1}}}}), std::exception);
  EXPECT_THROW(apply_shards({4, 3}, {{.dim = 0, .ranges = {{0, 3}, {1, 4}}}}), std::exception);
  EXPECT_THROW(apply_shards({4, 3}, {{.dim = 0, .row = 5, .ranges = {{0, 1}}}}), std::exception);
  EXPECT_THROW(apply_shards({4, 3}, {{.dim = 0, .row = 3, .ranges = {{0, 2}}}, {.dim = 0, .ranges = {{0, 1}}}}),
               std::exception);
}

}  // namespace
}  // namespace gantry
