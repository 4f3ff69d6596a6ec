// Parts of global tensors out of slices: the right elements, and nothing read that has none of them.
#include "gantry/checkpoint/slices.h"

#include <gtest/gtest.h>

#include <torch/torch.h>

namespace gantry::testing {
namespace {

// An [8, 6] tensor in slices along `dim` (-1: in one piece), one a file.
struct Stored {
  ManifestTensor tensor{"model", "w", find_stored_type("F64"), {8, 6}, {}};
  torch::Tensor whole = torch::arange(48, torch::kFloat64).view({8, 6});
  std::vector<std::string> read;  // the files that were asked for

  explicit Stored(int dim, const std::vector<std::vector<Range>>& slices) {
    for (const auto& ranges : slices) tensor.slices.push_back({std::to_string(tensor.slices.size()), dim, ranges});
  }

  static torch::Tensor part_of(const torch::Tensor& whole, int dim, const std::vector<Range>& ranges) {
    if (dim < 0) return whole;
    std::vector<torch::Tensor> parts;
    for (const Range& range : ranges) parts.push_back(whole.narrow(dim, range.begin, range.size()));
    return torch::cat(parts, dim);
  }

  // The files that the part was read from.
  std::vector<std::string> fill(int dim, const std::vector<Range>& ranges) {
    const torch::Tensor expected = part_of(whole, dim, ranges);
    const torch::Tensor target = torch::full(expected.sizes(), -1.0, torch::kFloat64);
    read.clear();
    const auto slice_of = [&](const ManifestSlice& slice) {
      read.push_back(slice.file);
      return part_of(whole, slice.dim, slice.ranges);
    };
    fill_from_slices(tensor, slice_of, target, dim, ranges);
    EXPECT_TRUE(torch::equal(target, expected));
    return read;
  }
};

using Files = std::vector<std::string>;

TEST(Slices, OnlyThoseAreReadThatHaveSomethingOfThePart) {
  Stored rows(0, {{{0, 2}}, {{2, 4}}, {{4, 6}}, {{6, 8}}});  // of tp 4
  EXPECT_EQ(rows.fill(0, {{2, 4}}), Files{"1"});             // the same layout
  EXPECT_EQ(rows.fill(0, {{0, 4}}), (Files{"0", "1"}));      // tp 2
  EXPECT_EQ(rows.fill(0, {{3, 6}}), (Files{"1", "2"}));      // tp 3, of uneven parts
  EXPECT_EQ(rows.fill(-1, {}), (Files{"0", "1", "2", "3"}));
  EXPECT_EQ(rows.fill(1, {{0, 3}}), (Files{"0", "1", "2", "3"}));  // sharded along the other dim: some of each
}

TEST(Slices, OfFusedProjectionsAndWholeTensorsToo) {
  Stored fused(0, {{{0, 2}, {4, 6}}, {{2, 4}, {6, 8}}});  // two segments over tp 2
  EXPECT_EQ(fused.fill(0, {{0, 1}, {4, 5}}), Files{"0"});
  EXPECT_EQ(fused.fill(0, {{2, 3}, {6, 7}}), Files{"1"});
  EXPECT_EQ(fused.fill(0, {{1, 3}, {5, 7}}), (Files{"0", "1"}));
  Stored whole(-1, {{}});
  EXPECT_EQ(whole.fill(1, {{2, 4}}), Files{"0"});
  EXPECT_EQ(whole.fill(-1, {}), Files{"0"});
}

}  // namespace
}  // namespace gantry::testing
