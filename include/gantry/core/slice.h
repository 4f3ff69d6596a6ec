// The elements of a global tensor that a rank has, and what two such slices have in common. Without LibTorch.
#pragma once

#include <functional>

#include "gantry/core/shard_spec.h"

namespace gantry {

using Shape = std::vector<std::int64_t>;

std::int64_t elements_of(const Shape& shape);

// The elements whose index lies, along each dim, in one of that dim's ranges. They lie in memory as a contiguous tensor
// of the shape that `shape()` says, a dim's ranges one after the other.
struct Box {
  std::vector<std::vector<Range>> dims;
  Shape shape() const;
  bool operator==(const Box&) const = default;
};

// A cut as one rank has it: these ranges of `dim` of what the cuts before have left; of its rows where `row` is above
// 0. What an index of files states.
struct AppliedShard {
  int dim = 0;
  std::int64_t row = 0;
  std::vector<Range> ranges;
  bool operator==(const AppliedShard&) const = default;
};

// What a rank has of a global tensor, in the order of its memory.
struct Slice {
  Shape global;            // the tensor's
  Shape shape;             // of what is there
  std::vector<Box> boxes;  // one after the other; one, of `shape`, where only dims were cut

  std::int64_t elements() const { return elements_of(shape); }
  // Rows were cut: the memory is the boxes', one after the other, and not one box.
  bool is_flat() const { return flat; }
  bool flat = false;
  bool operator==(const Slice&) const = default;
};

Slice full_slice(const Shape& global);
// What the cuts leave of the tensor, each of what the one before left. ConfigError for ranges that are not there, in
// words of the ranges alone.
Slice apply_cuts(const Shape& global, const std::vector<AppliedShard>& cuts);

// A block of a box: where it begins along each dim of it, and how far it reaches.
struct Block {
  Shape begin, size;
};
// Calls `take` with every block of elements that both boxes have: its place in each of them.
void common_blocks(const Box& first, const Box& second, const std::function<void(const Block&, const Block&)>& take);
bool have_common(const Slice& first, const Slice& second);

// Calls `take` with every run of elements that lie together in the global tensor and in the slice, in the slice's
// order: (first element in the global tensor, count).
void visit_runs(const Slice& slice, const std::function<void(std::int64_t, std::int64_t)>& take);

// How slices of one tensor cover it.
struct Covering {
  bool has_hole = false;
  bool has_overlap = false;
  bool is_known = true;  // false: there are too many pieces to tell
};
Covering covering_of(const Shape& global, const std::vector<Slice>& slices);

}  // namespace gantry
