// One cut of a tensor over ranks: of which dim each of them has what.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gantry/core/axis.h"

namespace gantry {

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// A contiguous part of the sharded dim (query, key or value of a fused projection; the whole dim when there is one),
// with each rank's half-open range in it, in elements of the dim. Ranges of several ranks may overlap (a key head that
// ranks share): the lowest rank owns the common elements.
struct Segment {
  Range extent;
  std::vector<Range> range_of_rank;
  bool operator==(const Segment&) const = default;
};

using Coordinates = std::map<std::string, int>;  // a rank's, by axis

// A cut of what the cuts before it have left: sharded along `dim` by `segments`, or nothing when dim is -1. Without
// segments the dim is partitioned as evenly as possible, whatever its extent is, and ranks may be left with nothing.
// With `row` above 0 the tensor that is left is seen as [-1, row] and `dim` is 0 of that: 1 cuts single elements, the
// last dim's extent cuts rows; what remains has the shape [rows, row].
struct ShardSpec {
  std::vector<Axis> axes;  // over whose ranks it is, outermost first; stated by who knows the mesh
  int dim = -1;
  std::int64_t row = 0;
  std::vector<Segment> segments;
  // Of a cut without segments: so many ranks hold each part, in turn: with 4 ranks and 2, ranks 0 and 2 the first part.
  // The lowest owns it.
  int repeat = 1;

  bool sharded() const { return dim >= 0; }
  int ranks() const;                                  // over the axes
  int rank_of(const Coordinates& coordinates) const;  // among those; throws where an axis has no coordinate
  // What a rank holds of a cut by segments, one after the other; empty where nothing is cut.
  std::vector<Range> ranges(int rank) const;
  std::vector<Range> owned(int rank) const;  // `ranges` without what a lower rank has
  std::int64_t local_size(int rank) const;   // the local extent of dim
  // The same of any cut, where the dim (rows, where it is seen so) has `extent` left.
  std::vector<Range> ranges(int rank, std::int64_t extent) const;
  std::vector<Range> owned(int rank, std::int64_t extent) const;
  int parts() const { return ranks() / repeat; }
  bool overlaps() const;
  bool operator==(const ShardSpec&) const = default;
};

ShardSpec replicate();

// Partitions `size` elements in units of `unit` over `ranks` as evenly as possible, the first ranks taking the
// remainder: partition(32, 1, 3) -> 11, 11, 10. ConfigError (with the arithmetic) if unit does not divide size, or a
// rank would be empty while `allow_empty` is false.
std::vector<Range> partition(std::int64_t size, std::int64_t unit, int ranks, bool allow_empty = false);

// A cut of `dim`, which is `segments` parts of equal extent, each partitioned in units.
ShardSpec shard(int dim, std::int64_t size, int ranks, int segments = 1, std::int64_t unit = 1);

// One part of a fused projection. `users` > 0: its units (key heads) are each used by an equal group of the `users`
// (query heads), which are what is partitioned; every rank then holds the units that its users need, so ranks may
// overlap.
struct Part {
  std::int64_t size = 0;
  std::int64_t unit = 1;
  std::int64_t users = 0;
};

// A cut of `dim`, which is these parts one after the other, each partitioned on its own. ConfigError as of
// partition(), and where the units do not divide the users.
ShardSpec shard_parts(int dim, const std::vector<Part>& parts, int ranks);

// A cut of `dim`, which is `groups` groups one after the other: each of its query heads, a key head and a value head,
// of `unit` elements. Query heads are partitioned; every rank then holds the key and value heads that its own need.
ShardSpec shard_groups(int dim, std::int64_t size, std::int64_t groups, std::int64_t unit, int ranks);

// An even cut over `axes` of the rows of what is left, seen as [-1, row].
ShardSpec shard_rows(std::int64_t row, std::vector<Axis> axes);

}  // namespace gantry
