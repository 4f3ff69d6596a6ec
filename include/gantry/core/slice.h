// The elements of a global tensor that a rank holds, and the intersection of two such slices. Independent of LibTorch.
#pragma once

#include <functional>

#include "gantry/core/shard_spec.h"

namespace gantry {

using Shape = std::vector<std::int64_t>;

// Returns the number of elements of a tensor with this shape; 1 for an empty shape.
std::int64_t elements_of(const Shape& shape);

// The elements whose index along each dimension is in one of the ranges of that dimension. In memory they are a
// contiguous tensor of shape shape(), with the ranges of a dimension concatenated.
struct Box {
  std::vector<std::vector<Range>> dims;
  Shape shape() const;
  bool operator==(const Box&) const = default;
};

// A sharding step as applied on one rank: `ranges` of dimension `dim` of the result of the previous steps or, if `row`
// is above 0, of its rows. Checkpoint indices store this form.
struct AppliedShard {
  int dim = 0;
  std::int64_t row = 0;
  std::vector<Range> ranges;
  bool operator==(const AppliedShard&) const = default;
};

// The part of a global tensor that a rank holds, in memory order.
struct Slice {
  Shape global;  // shape of the global tensor
  Shape shape;   // shape of the local tensor
  // Concatenated in memory. If only dimensions were sharded, there is a single box of shape `shape`.
  std::vector<Box> boxes;

  std::int64_t elements() const { return elements_of(shape); }
  // True if rows were sharded: the memory is the concatenation of the boxes.
  bool is_flat() const { return flat; }
  bool flat = false;
  bool operator==(const Slice&) const = default;
};

// Returns the slice with all elements.
Slice full_slice(const Shape& global);
// Applies sharding steps, each to the result of the previous one. Throws ConfigError if a range is invalid; the error
// names the range, and not the tensor or file.
Slice apply_shards(const Shape& global, const std::vector<AppliedShard>& shards);

// A block of a box: its first index and its size along each dimension.
struct Block {
  Shape begin, size;
};
// Calls `take` with every block of common elements: its position in the first and in the second box.
void common_blocks(const Box& first, const Box& second, const std::function<void(const Block&, const Block&)>& take);
bool have_common(const Slice& first, const Slice& second);

// Calls `take(first element in the global tensor, count)` for every run of elements that is contiguous in both the
// global tensor and the slice, in the order of the slice.
void visit_runs(const Slice& slice, const std::function<void(std::int64_t, std::int64_t)>& take);

// Whether slices of one tensor cover it.
struct Covering {
  bool has_hole = false;
  bool has_overlap = false;
  bool is_known = true;  // false: there are too many pieces to compute the result
};
Covering covering_of(const Shape& global, const std::vector<Slice>& slices);

}  // namespace gantry
