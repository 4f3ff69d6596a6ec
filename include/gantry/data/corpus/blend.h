// Several weighted sources as one endless row of items, by arithmetic: no list, any item at once.
//
// The sources are the leaves of a binary tree built as Huffman's, which keeps heavy sources near the root. At a node
// whose left side has the part r of its weight, floor(n r + 1/2) of its first n items go left, evenly spread. So among
// the first n items a source has its share n w within 2, for any n and any weights (a level adds at most 1/2, which
// shrinks by the weights on the way down; two levels down a weight is at most half). Megatron's greedy choice stays
// within the same order but must count from the first item.
#pragma once

#include <cstdint>
#include <vector>

namespace gantry {

struct BlendedItem {
  int source = 0;
  std::int64_t index = 0;  // how many items of this source there are before it: its samples are taken in order
  bool operator==(const BlendedItem&) const = default;
};

class Blend {
 public:
  // Weights need not sum to 1; a source of weight 0 gives nothing. ConfigError for none, all zero, or one that is
  // negative or not finite.
  explicit Blend(const std::vector<double>& weights);

  int sources() const { return sources_; }
  BlendedItem item(std::int64_t position) const;  // position >= 0; O(depth of the tree)
  // Of the first `items` items, how many each source gives.
  std::vector<std::int64_t> counts(std::int64_t items) const;

 private:
  struct Node {
    double weight = 0;
    int source = 0;             // of a leaf
    int left = -1, right = -1;  // -1: a leaf
    std::uint64_t part = 0;     // left's part of the weight, in units of 2^-63
    std::int64_t count_left(std::int64_t items) const;
  };
  void add_counts(int node, std::int64_t items, std::vector<std::int64_t>& counts) const;

  int sources_;
  std::vector<Node> nodes_;  // the root is the last
};

}  // namespace gantry
