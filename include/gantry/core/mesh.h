// The mesh: named axes over the world ranks. It only computes; comm/ creates the process groups.
#pragma once

#include <string>
#include <vector>

#include "gantry/core/axis.h"
#include "gantry/core/shard_spec.h"

namespace gantry {

class Mesh {
 public:
  using Axis = gantry::Axis;

  // `axes`: the axes of the dense view, outermost first. Neighbours on the last axis are adjacent world ranks.
  // A value of `expert` above 1 adds the expert view, in which the ranks with equal pp are indexed, in rank order, by
  // edp (outer) and ep (inner). Throws ConfigError if a size is less than 1, a name is repeated, or `expert` does not
  // divide the ranks of a stage.
  explicit Mesh(std::vector<Axis> axes, int expert = 1);

  // Returns the mesh of a job with `ranks` ranks. data = 0: ranks / (tensor * pipeline * context). `order` is a
  // permutation of pp, dp, tp and, optionally, cp. Without cp in `order`, the cp axis is placed just outside tp; it is
  // omitted if its size is 1. Throws ConfigError if the product of the sizes is not `ranks`.
  static Mesh hybrid(int ranks, int pipeline, int data, int tensor,
                     const std::vector<std::string>& order = {axis::kPipeline, axis::kData, axis::kTensor},
                     int context = 1, int expert = 1);

  int size() const { return size_; }
  // The axes of a view, outermost first. If expert = 1, the dense axes for both views.
  const std::vector<Axis>& axes(axis::View view = axis::View::kDense) const;
  bool has_expert_view() const { return !expert_axes_.empty(); }
  // The axes of a view along which ranks process different parts of the batch, and the axes that shard layers.
  std::vector<std::string> batch_axes(axis::View view = axis::View::kDense) const;
  std::vector<std::string> sharding_axes(axis::View view = axis::View::kDense) const;
  // The number of ranks that share a sequence: the size of cp, or 1 without that axis.
  int ranks_of_sequence() const;
  // The dense axes except pp, which the expert view divides differently.
  std::vector<std::string> within_stage() const;

  // For an axis of either view. Throws ConfigError with the known names if the axis is unknown.
  int axis_size(const std::string& axis) const;
  int coordinate(int rank, const std::string& axis) const;
  std::vector<int> coordinates(int rank) const;  // in the dense view
  Coordinates coordinates_by_axis(int rank, axis::View view = axis::View::kDense) const;
  // Throws ConfigError unless there is one coordinate within the size of each dense axis.
  int rank_at(const std::vector<int>& coordinates) const;

  // Returns the ranks whose coordinates outside `axes` equal those of `rank`, ascending. All axes must be of one view.
  std::vector<int> ranks_along(int rank, const std::vector<std::string>& axes) const;
  // Returns all these groups, each ascending, ordered by their first rank.
  std::vector<std::vector<int>> groups(const std::vector<std::string>& axes) const;
  // Returns the sets of axes for which a job needs process groups, in the same order on all ranks. They are: every
  // subset of {pp, the batch axes together, each axis that shards layers}; each batch axis alone; and the sets of the
  // expert view.
  std::vector<std::vector<std::string>> group_sets() const;

  std::string describe(axis::View view = axis::View::kDense) const;                 // "pp 2 x dp 1 x tp 2"
  std::string describe_rank(int rank, axis::View view = axis::View::kDense) const;  // "rank 2 (pp 1, dp 0, tp 0)"

 private:
  int index_of(const std::string& axis) const;
  bool is_of_expert_view(const std::string& axis) const;
  // The offsets of a group along dense `axes` from its first rank, ascending.
  std::vector<int> offsets_along(const std::vector<std::string>& axes) const;
  std::vector<int> ranks_along_expert(int rank, const std::vector<std::string>& axes) const;
  std::vector<Axis> axes_;
  std::vector<Axis> expert_axes_;  // empty: no expert view
  int size_;
};

}  // namespace gantry
