// One step of sharding a tensor over ranks: the dimension, and the part of it that each rank holds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gantry/core/axis.h"

namespace gantry {

// A half-open range.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// A contiguous part of the sharded dimension: query, key or value of a fused projection, or the full dimension. Each
// rank holds a half-open range of it, in elements of the dimension. Ranges overlap if ranks share a KV head; the lowest
// of these ranks owns the shared elements.
struct Segment {
  Range extent;
  std::vector<Range> range_of_rank;
  bool operator==(const Segment&) const = default;
};

using Coordinates = std::map<std::string, int>;  // axis name -> index of a rank

// Applies to the local tensor that the previous steps leave. `dim` is sharded by `segments` or, without segments, into
// contiguous ranges that are as even as possible and may be empty. dim = -1: not sharded. If row > 0, the tensor is
// viewed as [-1, row] and `dim` is 0 of this view: row = 1 shards single elements, the extent of the last dimension
// shards rows. The local shape is then [rows, row].
struct ShardSpec {
  std::vector<Axis> axes;  // mesh axes to shard over, outermost first; set by the caller that knows the mesh
  int dim = -1;
  std::int64_t row = 0;
  std::vector<Segment> segments;
  // Number of ranks that hold each part, without segments only. With 4 ranks and repeat = 2, ranks 0 and 2 hold the
  // first part. The lowest of them owns it.
  int repeat = 1;

  bool sharded() const { return dim >= 0; }
  int ranks() const;                                  // number of ranks along `axes`
  int rank_of(const Coordinates& coordinates) const;  // index among these; InternalError if an axis is missing
  // The ranges that a rank holds, one per segment. Empty without segments.
  std::vector<Range> ranges(int rank) const;
  std::vector<Range> owned(int rank) const;  // `ranges` without the elements that a lower rank holds too
  std::int64_t local_size(int rank) const;   // total size of `ranges`
  // The same with or without segments. `extent`: size of the dimension in the local tensor (of rows, if row > 0).
  std::vector<Range> ranges(int rank, std::int64_t extent) const;
  std::vector<Range> owned(int rank, std::int64_t extent) const;
  int parts() const { return ranks() / repeat; }
  bool overlaps() const;
  bool operator==(const ShardSpec&) const = default;
};

// Returns a ShardSpec that is not sharded.
ShardSpec replicate();

// Partitions `size` elements into one contiguous range per rank, in multiples of `unit`, as evenly as possible. The
// first ranks get the remainder: partition(32, 1, 3) -> 11, 11, 10. Throws ConfigError if `unit` does not divide
// `size`, or if a rank would get nothing and `allow_empty` is false.
std::vector<Range> partition(std::int64_t size, std::int64_t unit, int ranks, bool allow_empty = false);

// Shards `dim`, which consists of `segments` segments of equal size, each partitioned in multiples of `unit`.
ShardSpec shard(int dim, std::int64_t size, int ranks, int segments = 1, std::int64_t unit = 1);

// One part of a fused projection. If users > 0, the part consists of units (KV heads) that are each shared by an equal
// number of the `users` (query heads). The users are partitioned, and a rank holds all units that its users need, so
// ranges may overlap.
struct Part {
  std::int64_t size = 0;
  std::int64_t unit = 1;
  std::int64_t users = 0;
};

// Shards `dim`, which consists of these parts in order, each partitioned independently. Throws ConfigError like
// partition(), or if the number of units does not divide the number of users.
ShardSpec shard_parts(int dim, const std::vector<Part>& parts, int ranks);

// Shards `dim`, which consists of `groups` groups in order: query heads, one key head and one value head, of `unit`
// elements each. The query heads are partitioned, and a rank also holds the key and value heads that they need.
ShardSpec shard_groups(int dim, std::int64_t size, std::int64_t groups, std::int64_t unit, int ranks);

// Shards `dim`, which consists of `blocks` blocks in order: equal numbers of query heads, value heads and key heads, of
// `unit` elements each. The heads of all blocks together are partitioned.
ShardSpec shard_blocks(int dim, std::int64_t size, std::int64_t blocks, std::int64_t unit, int ranks);

// Shards the rows of the local tensor, viewed as [-1, row], evenly over `axes`.
ShardSpec shard_rows(std::int64_t row, std::vector<Axis> axes);

}  // namespace gantry
