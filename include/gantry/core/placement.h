// How one parameter lies on the mesh. Stated once by who shards it; slices, gradient sums, the gradient norm,
// checkpoints and initial weights are all derived from it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gantry {

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// A contiguous part of the sharded dim (query, key or value of a fused projection; the whole dim when there is one),
// with each rank's half-open range in it, in elements of the global dim. Ranges of several ranks may overlap (a key
// head that ranks share): the lowest rank owns the common elements.
struct Segment {
  Range extent;
  std::vector<Range> range_of_rank;
  bool operator==(const Segment&) const = default;
};

// A parameter's placement along one axis: replicated when dim is -1, else sharded along `dim` by `segments`.
struct AxisPlacement {
  int dim = -1;
  std::vector<Segment> segments;
  // True where replicas see different activations (sequence parallel), so that their gradients are partial sums.
  bool partial_gradient = false;

  bool sharded() const { return dim >= 0; }
  std::vector<Range> ranges(
      int axis_rank) const;  // what this rank holds of dim, segment by segment; empty if replicated
  std::vector<Range> owned(int axis_rank) const;  // `ranges` without what a lower rank has
  std::int64_t local_size(int axis_rank) const;   // the local extent of dim
  bool overlaps() const;
  bool operator==(const AxisPlacement&) const = default;
};

AxisPlacement replicate();

// Partitions `size` elements in units of `unit` over `ranks` as evenly as possible, the first ranks taking the
// remainder: partition(32, 1, 3) -> 11, 11, 10. ConfigError (with the arithmetic) if unit does not divide size, or a
// rank would be empty while `allow_empty` is false.
std::vector<Range> partition(std::int64_t size, std::int64_t unit, int ranks, bool allow_empty = false);

// A shard of `dim`, which is `segments` parts of equal extent, each partitioned in units.
AxisPlacement shard(int dim, std::int64_t size, int ranks, int segments = 1, std::int64_t unit = 1);

// One part of a fused projection. `users` > 0: its units (key heads) are each used by an equal group of the `users`
// (query heads), which are what is partitioned; every rank then holds the units that its users need, so ranks may
// overlap.
struct Part {
  std::int64_t size = 0;
  std::int64_t unit = 1;
  std::int64_t users = 0;
};

// A shard of `dim`, which is these parts one after the other, each partitioned on its own. ConfigError as of
// partition(), and where the units do not divide the users.
AxisPlacement shard_parts(int dim, const std::vector<Part>& parts, int ranks);

struct Placement {
  std::string name;  // global name: "h.7.mlp.up.weight"
  std::vector<std::int64_t> global_shape;
  std::map<std::string, AxisPlacement> axes;  // by axis name; an axis that is absent replicates
  std::vector<int> stages;                    // the stages that hold it, ascending; several when shared
  std::vector<std::string> aliases;           // other global names of the same shared parameter

  const AxisPlacement& along(const std::string& axis) const;
  std::vector<std::int64_t> local_shape(const std::map<std::string, int>& coordinates) const;
  // The axes over which the gradient of a replica must be summed: dp always, others where they hold partial sums.
  std::vector<std::string> gradient_axes() const;
  // True on the one rank among replicas (pp of a shared parameter, dp, tp) that counts it: lowest stage, coordinate 0
  // of every axis that replicates it.
  bool counted_by(const std::map<std::string, int>& coordinates, const std::vector<int>& held_stages) const;
};

}  // namespace gantry
