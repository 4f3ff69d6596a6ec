#include "gantry/core/placement.h"

#include <gtest/gtest.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

std::vector<std::int64_t> sizes(const std::vector<Range>& ranges) {
  std::vector<std::int64_t> all;
  for (const auto& range : ranges) all.push_back(range.size());
  return all;
}

TEST(Deal, FirstRanksTakeTheRemainder) {
  EXPECT_EQ(sizes(partition(32, 1, 3)), (std::vector<std::int64_t>{11, 11, 10}));
  EXPECT_EQ(sizes(partition(10, 1, 4)), (std::vector<std::int64_t>{3, 3, 2, 2}));
  EXPECT_EQ(sizes(partition(48, 12, 3)), (std::vector<std::int64_t>{24, 12, 12}));
  EXPECT_EQ(sizes(partition(1, 1, 2, /*allow_empty=*/true)), (std::vector<std::int64_t>{1, 0}));
}

TEST(Deal, RefusesMoreRanksThanUnitsAndUnitsThatDoNotDivide) {
  EXPECT_THROW(partition(48, 24, 3), ConfigError);
  EXPECT_THROW(partition(50, 24, 2), ConfigError);
}

TEST(Deal, SaysThatAnotherStageHoldsATensorWithoutElements) {
  try {
    shard(0, 0, 1);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("on stages without the layer"), std::string::npos) << error.what();
  }
}

TEST(ShardSpec, FusedSegmentsAreDealtOneByOne) {
  const ShardSpec placement = shard(0, 3 * 8, 3, 3, 2);  // heads of 2: 2, 1, 1
  EXPECT_EQ(placement.ranges(0), (std::vector<Range>{{0, 4}, {8, 12}, {16, 20}}));
  EXPECT_EQ(placement.ranges(2), (std::vector<Range>{{6, 8}, {14, 16}, {22, 24}}));
  EXPECT_EQ(placement.local_size(1), 6);
  EXPECT_FALSE(placement.overlaps());
}

TEST(ShardSpec, TheLowestRankOwnsWhatRanksShare) {
  const ShardSpec placement{.axes = {}, .dim = 0, .segments = {{{0, 4}, {{0, 2}, {0, 2}, {2, 4}}}}};
  EXPECT_TRUE(placement.overlaps());
  EXPECT_EQ(sizes(placement.owned(0)), (std::vector<std::int64_t>{2}));
  EXPECT_EQ(sizes(placement.owned(1)), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(sizes(placement.owned(2)), (std::vector<std::int64_t>{2}));
}

// Two groups of two query heads of 3 elements, a key head and a value head: rows q0 q1 k v, q2 q3 k v.
TEST(ShardSpec, OfAGroupARankHasTheKeyHeadThatItsQueriesNeed) {
  const ShardSpec two = shard_groups(0, 24, 2, 3, 2), three = shard_groups(0, 24, 2, 3, 3);
  EXPECT_EQ(two.ranges(0), (std::vector<Range>{{0, 6}, {6, 9}, {9, 12}, {12, 12}, {18, 18}, {21, 21}}));
  EXPECT_EQ(two.local_size(1), 12);
  EXPECT_FALSE(two.overlaps());
  // Heads 0 and 1, head 2, head 3: the last two share the second group's key head, which rank 1 owns.
  EXPECT_EQ(three.ranges(1), (std::vector<Range>{{6, 6}, {9, 9}, {12, 12}, {12, 15}, {18, 21}, {21, 24}}));
  EXPECT_EQ(three.ranges(2), (std::vector<Range>{{6, 6}, {9, 9}, {12, 12}, {15, 18}, {18, 21}, {21, 24}}));
  EXPECT_TRUE(three.overlaps());
  std::vector<int> owners(24);
  for (int rank = 0; rank < 3; ++rank)
    for (const Range& range : three.owned(rank))
      for (std::int64_t row = range.begin; row < range.end; ++row) ++owners[row];
  EXPECT_EQ(owners, std::vector<int>(24, 1));
  EXPECT_THROW(shard_groups(0, 25, 2, 3, 2), ConfigError);
  EXPECT_THROW(shard_groups(0, 24, 2, 3, 5), ConfigError);
}

// Two blocks of two heads of 3 elements: rows q0 q1 v0 v1 k0 k1, q2 q3 v2 v3 k2 k3.
TEST(ShardSpec, OfBlocksARankHasTheSameHeadsInEachPart) {
  const ShardSpec three = shard_blocks(0, 36, 2, 3, 3);
  EXPECT_EQ(three.ranges(0), (std::vector<Range>{{0, 6}, {6, 12}, {12, 18}, {18, 18}, {24, 24}, {30, 30}}));
  EXPECT_EQ(three.ranges(1), (std::vector<Range>{{6, 6}, {12, 12}, {18, 18}, {18, 21}, {24, 27}, {30, 33}}));
  EXPECT_EQ(three.local_size(2), 9);
  EXPECT_FALSE(three.overlaps());
  EXPECT_THROW(shard_blocks(0, 30, 2, 3, 2), ConfigError);
  EXPECT_THROW(shard_blocks(0, 36, 2, 3, 5), ConfigError);
}

TEST(Placement, CountsReplicasOnce) {
  ShardSpec rows = shard(0, 8, 2);
  rows.axes = {{"tp", 2}};
  Placement placement{.name = "w", .global_shape = {8, 3}, .shards = {rows}, .stages = {1, 3}, .aliases = {}};
  EXPECT_TRUE(placement.counted_by({{"pp", 1}, {"dp", 0}, {"tp", 1}}, {1}));
  EXPECT_FALSE(placement.counted_by({{"pp", 1}, {"dp", 1}, {"tp", 1}}, {1}));
  EXPECT_FALSE(placement.counted_by({{"pp", 3}, {"dp", 0}, {"tp", 0}}, {3}));
  EXPECT_EQ(&placement.along("tp"), &placement.shards.front());
  EXPECT_FALSE(placement.along("dp").sharded());
  placement.shards.clear();
  EXPECT_FALSE(placement.counted_by({{"pp", 1}, {"dp", 0}, {"tp", 1}}, {1}));
}

}  // namespace
}  // namespace gantry
