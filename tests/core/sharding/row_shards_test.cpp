// The row shards of ZeRO 3: every element has one owner, after any earlier shards, over any batch ranks, and
// also with replicated shards.
#include "gantry/core/sharding/row_shards.h"

#include <gtest/gtest.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// Checks that one rank owns each element and that `copies` ranks hold it.
void expect_owned_once(const Mesh& mesh, const Placement& placement, int copies) {
  const axis::View view = placement.view;
  const std::int64_t elements = elements_of(placement.global_shape);
  std::vector<int> owners(elements), holders(elements);
  double counted = 0;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const Coordinates here = mesh.coordinates_by_axis(rank, view);
    const auto add = [&](const Slice& slice, std::vector<int>& to) {
      visit_runs(slice, [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t i = first; i < first + count; ++i) ++to[i];
      });
    };
    add(owned_slice(placement, here), owners);
    add(held_slice(placement, here), holders);
    if (placement.counted_by(here, {0})) counted += static_cast<double>(owned_slice(placement, here).elements());
    const Shape local = placement.local_shape(here);
    EXPECT_EQ(local.size(), 2u);
    EXPECT_TRUE(placement.gradient_axes(mesh.batch_axes(view)).empty());
  }
  EXPECT_EQ(owners, std::vector<int>(elements, 1)) << mesh.describe();
  EXPECT_EQ(holders, std::vector<int>(elements, copies)) << mesh.describe();
  EXPECT_EQ(counted, static_cast<double>(elements)) << mesh.describe();
}

TEST(RowShards, EveryElementHasOneOwner) {
  for (const int data : {1, 2, 3, 4, 5})
    for (const int context : {1, 2})
      for (const int tensor : {1, 2})
        for (const bool outside : {false, true}) {
          const std::vector<std::string> order =
              outside ? std::vector<std::string>{axis::kPipeline, axis::kContext, axis::kData, axis::kTensor}
                      : std::vector<std::string>{axis::kPipeline, axis::kData, axis::kTensor};
          const Mesh mesh = Mesh::hybrid(data * context * tensor, 1, data, tensor, order, context);
          for (const int parts : {1, 2, data * context}) {
            if (data * context % parts != 0) continue;
            const ViewShards rows = row_shards(mesh, parts).dense;
            for (const Shape& shape : {Shape{6, 5}, Shape{1, 3}, Shape{3, 2, 2}, Shape{7}, Shape{1}, Shape{2, 4}}) {
              Placement placement{.name = "w", .global_shape = shape, .shards = {}, .stages = {0}, .aliases = {}};
              const bool is_sharded = shape[0] >= tensor && tensor > 1;
              if (is_sharded) {
                ShardSpec first = shard(0, shape[0], tensor);
                first.axes = {{axis::kTensor, tensor}};
                placement.shards.push_back(first);
              }
              const Shape left = placement.local_shape(mesh.coordinates_by_axis(0));
              placement.shards.push_back(row_shard(left, rows));
              if (!is_sharded && tensor > 1) continue;  // the other tp ranks hold replicas
              expect_owned_once(mesh, placement, rows.replicas());
            }
          }
        }
}

// An expert's weights are sharded over shard * tp / ep of its ranks.
TEST(RowShards, ExpertsAreOwnedOnceByTheRanksThatHaveThem) {
  for (const int data : {1, 2, 4})
    for (const int context : {1, 2})
      for (const int tensor : {1, 2})
        for (const int expert : {2, 4}) {
          const int within = data * context * tensor;
          if (within % expert != 0) continue;
          const Mesh mesh =
              Mesh::hybrid(within, 1, data, tensor, {axis::kPipeline, axis::kData, axis::kTensor}, context, expert);
          for (const int shard : {0, 1, 2}) {
            if (shard > 0 && data * context % shard != 0) continue;
            const ViewShards rows = row_shards(mesh, shard).of(axis::View::kExpert);
            EXPECT_EQ(rows.ranks(), within / expert);
            EXPECT_EQ(rows.parts, std::max(1, (shard == 0 ? data * context : shard) * tensor / expert));
            ShardSpec over = gantry::shard(0, 5, expert);  // five experts, unevenly
            over.axes = {{axis::kExpert, expert}};
            Placement placement{.name = "w", .global_shape = {5, 3, 2}, .shards = {over}, .stages = {0}, .aliases = {}};
            placement.view = axis::View::kExpert;
            const Coordinates first = mesh.coordinates_by_axis(0, axis::View::kExpert);
            placement.shards.push_back(row_shard(placement.local_shape(first), rows));
            expect_owned_once(mesh, placement, rows.replicas());
          }
        }
  const Mesh mesh = Mesh::hybrid(6, 1, 6, 1, {axis::kPipeline, axis::kData, axis::kTensor}, 1, 2);
  EXPECT_THROW(row_shards(mesh, 3), ConfigError);  // three ranks share two experts' rows
}

TEST(RowShards, ContextComesFirstThenData) {
  const Mesh mesh = Mesh::hybrid(8, 1, 4, 1, {axis::kPipeline, axis::kData, axis::kTensor}, 2);
  const ViewShards rows = row_shards(mesh, 4).dense;
  EXPECT_EQ(rows.parts, 4);
  EXPECT_EQ(rows.replicas(), 2);
  const Coordinates third = mesh.coordinates_by_axis(3), last = mesh.coordinates_by_axis(7);  // dp 1, cp 1; dp 3, cp 1
  EXPECT_EQ(rows.part_of(third), 3);
  EXPECT_EQ(rows.replica_of(third), 0);
  EXPECT_EQ(rows.part_of(last), 3);
  EXPECT_EQ(rows.replica_of(last), 1);
  EXPECT_EQ(row_shards(mesh, 0).dense.parts, 8);
  EXPECT_THROW(row_shards(mesh, 3), ConfigError);
}

TEST(RowShards, RowsAreThoseOfTheLastDim) {
  const Mesh mesh = Mesh::hybrid(2, 1, 2, 1);
  const ViewShards rows = row_shards(mesh, 0).dense;
  EXPECT_EQ(row_shard({3, 2, 4}, rows).row, 4);
  EXPECT_EQ(row_shard({5}, rows).row, 1);  // single elements, because there is only one dim
  Placement placement{
      .name = "w", .global_shape = {3, 2}, .shards = {row_shard({3, 2}, rows)}, .stages = {0}, .aliases = {}};
  EXPECT_EQ(placement.local_shape({{axis::kData, 0}}), (Shape{2, 2}));
  EXPECT_EQ(placement.local_shape({{axis::kData, 1}}), (Shape{1, 2}));
  placement.global_shape = {1, 2};
  EXPECT_EQ(placement.local_shape({{axis::kData, 1}}), (Shape{0, 2}));
}

}  // namespace
}  // namespace gantry
