// The mesh: named axes over the world ranks. Pure arithmetic; process groups are made from it in comm/.
#pragma once

#include <string>
#include <vector>

#include "gantry/core/axis.h"
#include "gantry/core/shard_spec.h"

namespace gantry {

class Mesh {
 public:
  using Axis = gantry::Axis;

  // Axes of the dense view, outermost first: the last one's neighbours are adjacent world ranks. Sizes are at least 1,
  // names distinct; else ConfigError. With `expert` above 1 there is the expert view too: ranks that share pp, in the
  // order of their rank, are counted by edp outside and ep inside. ConfigError where `expert` does not divide them.
  explicit Mesh(std::vector<Axis> axes, int expert = 1);

  // The mesh of a job of `ranks` ranks; data 0 means ranks / (tensor * pipeline * context). `order` is a permutation
  // of pp, dp, tp, and cp where its place matters: without a name there it stands just outside tp, and not at all at
  // size 1. ConfigError with the arithmetic where the sizes don't multiply to `ranks`.
  static Mesh hybrid(int ranks, int pipeline, int data, int tensor,
                     const std::vector<std::string>& order = {axis::kPipeline, axis::kData, axis::kTensor},
                     int context = 1, int expert = 1);

  int size() const { return size_; }
  // The axes of a view, outermost first. Without experts over ranks both views are the dense one.
  const std::vector<Axis>& axes(axis::View view = axis::View::kDense) const;
  bool has_expert_view() const { return !expert_axes_.empty(); }
  // Those along which ranks see other parts of the batch, and those that cut layers, of a view.
  std::vector<std::string> batch_axes(axis::View view = axis::View::kDense) const;
  std::vector<std::string> cutting_axes(axis::View view = axis::View::kDense) const;
  // The dense axes but pp: those that the expert view counts otherwise.
  std::vector<std::string> within_stage() const;

  // Of either view. ConfigError for an unknown axis, naming the known ones.
  int axis_size(const std::string& axis) const;
  int coordinate(int rank, const std::string& axis) const;
  std::vector<int> coordinates(int rank) const;  // of the dense view
  Coordinates coordinates_by_axis(int rank, axis::View view = axis::View::kDense) const;
  // ConfigError unless there is one coordinate for each axis of the dense view, within its size.
  int rank_at(const std::vector<int>& coordinates) const;

  // The ranks that share with `rank` every coordinate outside `axes`, ascending. The axes are of one view.
  std::vector<int> ranks_along(int rank, const std::vector<std::string>& axes) const;
  // All such groups, each ascending, ordered by their first rank.
  std::vector<std::vector<int>> groups(const std::vector<std::string>& axes) const;
  // The sets of axes that a job needs groups for, in one order on all ranks: every set of pp, the batch axes as one,
  // and each axis that cuts layers; each batch axis alone; and those of the expert view.
  std::vector<std::vector<std::string>> group_sets() const;
  // The rank next to `rank` along `axis` by `step`, wrapping round.
  int neighbour(int rank, const std::string& axis, int step) const;

  std::string describe(axis::View view = axis::View::kDense) const;                 // "pp 2 x dp 1 x tp 2"
  std::string describe_rank(int rank, axis::View view = axis::View::kDense) const;  // "rank 2 (pp 1, dp 0, tp 0)"

 private:
  int index_of(const std::string& axis) const;
  bool is_of_expert_view(const std::string& axis) const;
  // What to add to the first rank of a group along dense `axes` for each of its ranks, ascending.
  std::vector<int> offsets_along(const std::vector<std::string>& axes) const;
  std::vector<int> ranks_along_expert(int rank, const std::vector<std::string>& axes) const;
  std::vector<Axis> axes_;
  std::vector<Axis> expert_axes_;  // empty: the dense ones
  int size_;
};

}  // namespace gantry
