// Reads parts of global tensors from slices. Only slices that contain elements of the part may be read.
#include "gantry/checkpoint/slices.h"

#include <gtest/gtest.h>

#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

// An [8, 6] tensor in slices along `dim` (-1: one slice), with one file per slice.
struct Stored {
  ManifestTensor tensor{"model", "w", find_stored_type("F64"), {8, 6}, {}};
  torch::Tensor full = torch::arange(48, torch::kFloat64).view({8, 6});
  std::vector<std::string> read;  // files that were read

  explicit Stored(int dim, const std::vector<std::vector<Range>>& slices) {
    for (const auto& ranges : slices) add(shards_of(dim, ranges));
  }
  explicit Stored(const std::vector<std::vector<AppliedShard>>& slices) {
    for (const auto& shards : slices) add(shards);
  }
  void add(std::vector<AppliedShard> shards) {
    tensor.slices.push_back({std::to_string(tensor.slices.size()), std::move(shards)});
  }

  static std::vector<AppliedShard> shards_of(int dim, const std::vector<Range>& ranges) {
    return dim < 0 ? std::vector<AppliedShard>() : std::vector<AppliedShard>{{.dim = dim, .ranges = ranges}};
  }
  // The expected part, computed shard by shard.
  static torch::Tensor part_of(const torch::Tensor& full, const std::vector<AppliedShard>& shards) {
    torch::Tensor left = full;
    for (const AppliedShard& shard : shards) {
      if (shard.row > 0) left = left.reshape({-1, shard.row});
      std::vector<torch::Tensor> parts;
      for (const Range& range : shard.ranges) parts.push_back(left.narrow(shard.dim, range.begin, range.size()));
      left = torch::cat(parts, shard.dim);
    }
    return left;
  }

  // Reads a part, checks its elements, and returns the files that were read.
  std::vector<std::string> fill(const std::vector<AppliedShard>& shards) {
    const torch::Tensor expected = part_of(full, shards);
    const torch::Tensor target = torch::full(expected.sizes(), -1.0, torch::kFloat64);
    read.clear();
    const auto slice_of = [&](const ManifestSlice& slice) {
      read.push_back(slice.file);
      return part_of(full, slice.shards).contiguous();
    };
    fill_from_slices(tensor, slice_of, target, apply_shards(tensor.shape, shards));
    EXPECT_TRUE(torch::equal(target, expected));
    return read;
  }
  std::vector<std::string> fill(int dim, const std::vector<Range>& ranges) { return fill(shards_of(dim, ranges)); }
};

using Files = std::vector<std::string>;

TEST(Slices, OnlyThoseAreReadThatHaveSomethingOfThePart) {
  Stored rows(0, {{{0, 2}}, {{2, 4}}, {{4, 6}}, {{6, 8}}});  // tp 4
  EXPECT_EQ(rows.fill(0, {{2, 4}}), Files{"1"});             // the same layout
  EXPECT_EQ(rows.fill(0, {{0, 4}}), (Files{"0", "1"}));      // tp 2
  EXPECT_EQ(rows.fill(0, {{3, 6}}), (Files{"1", "2"}));      // tp 3, of uneven parts
  EXPECT_EQ(rows.fill(-1, {}), (Files{"0", "1", "2", "3"}));
  EXPECT_EQ(rows.fill(1, {{0, 3}}), (Files{"0", "1", "2", "3"}));  // sharded along the other dim: some of each
}

TEST(Slices, OfFusedProjectionsAndFullTensorsToo) {
  Stored fused(0, {{{0, 2}, {4, 6}}, {{2, 4}, {6, 8}}});  // two segments over tp 2
  EXPECT_EQ(fused.fill(0, {{0, 1}, {4, 5}}), Files{"0"});
  EXPECT_EQ(fused.fill(0, {{2, 3}, {6, 7}}), Files{"1"});
  EXPECT_EQ(fused.fill(0, {{1, 3}, {5, 7}}), (Files{"0", "1"}));
  Stored full(-1, {{}});
  EXPECT_EQ(full.fill(1, {{2, 4}}), Files{"0"});
  EXPECT_EQ(full.fill(-1, {}), Files{"0"});
}

// Columns are sharded over one axis. The local tensor is sharded over another axis, by elements or by rows of
// three.
TEST(Slices, OfOrderedShards) {
  const AppliedShard left{.dim = 1, .ranges = {{0, 3}}}, right{.dim = 1, .ranges = {{3, 6}}};
  const auto flat = [](std::int64_t row, std::int64_t begin, std::int64_t end) {
    return AppliedShard{.dim = 0, .row = row, .ranges = {{begin, end}}};
  };
  Stored stored(
      std::vector<std::vector<AppliedShard>>{{left, flat(1, 0, 11)}, {left, flat(1, 11, 24)}, {right, flat(3, 0, 8)}});
  EXPECT_EQ(stored.fill(-1, {}), (Files{"0", "1", "2"}));
  EXPECT_EQ(stored.fill(0, {{0, 3}}), (Files{"0", "2"}));
  EXPECT_EQ(stored.fill(1, {{3, 5}}), Files{"2"});
  EXPECT_EQ(stored.fill({flat(1, 5, 31)}), (Files{"0", "1", "2"}));
  EXPECT_EQ(stored.fill({left, flat(1, 11, 24)}), Files{"1"});
  EXPECT_EQ(stored.fill({flat(6, 7, 8)}), (Files{"1", "2"}));
}

}  // namespace
}  // namespace gantry::testing
