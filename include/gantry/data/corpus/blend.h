// Blends weighted sources into one endless sequence of items. Any item is computed directly from its position, without
// a list.
//
// The sources are the leaves of a Huffman tree, so heavy sources are near the root. At a node whose left side has the
// fraction r of its weight, floor(n r + 1/2) of its first n items go left, evenly spread. Each source therefore has its
// share n w of the first n items with an error below 2, for any n and any weights. The reason is that each level adds
// at most 1/2, scaled by the weights on the way down, and that the weight at least halves every two levels. Megatron's
// greedy algorithm has a similar error, but must count from the first item.
#pragma once

#include <cstdint>
#include <vector>

namespace gantry {

struct BlendedItem {
  int source = 0;
  std::int64_t index = 0;  // number of earlier items of the same source; its samples are used in order
  bool operator==(const BlendedItem&) const = default;
};

class Blend {
 public:
  // Weights need not sum to 1; a source of weight 0 gets no items. Throws ConfigError if there are no weights, if all
  // are 0, or if one is negative or not finite.
  explicit Blend(const std::vector<double>& weights);

  int sources() const { return sources_; }
  BlendedItem item(std::int64_t position) const;  // position >= 0; O(depth of the tree)
  // Returns the number of items of each source among the first `items` items.
  std::vector<std::int64_t> counts(std::int64_t items) const;

 private:
  struct Node {
    double weight = 0;
    int source = 0;             // for a leaf
    int left = -1, right = -1;  // -1: a leaf
    std::uint64_t part = 0;     // the left side's fraction of the weight, in units of 2^-63
    std::int64_t count_left(std::int64_t items) const;
  };
  void add_counts(int node, std::int64_t items, std::vector<std::int64_t>& counts) const;

  int sources_;
  std::vector<Node> nodes_;  // the root is the last one
};

}  // namespace gantry
