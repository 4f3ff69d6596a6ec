// How one parameter lies on the mesh. Stated once by who shards it; slices, gradient sums, the gradient norm,
// checkpoints and initial weights are all derived from it.
#pragma once

#include "gantry/core/slice.h"

namespace gantry {

struct Placement {
  std::string name;  // global name: "h.7.mlp.up.weight"
  Shape global_shape;
  std::vector<ShardSpec> cuts;  // in their order, each of what the one before left; over an axis that none names it is
                                // replicated
  std::vector<int> stages;      // the stages that hold it, ascending; several when shared
  std::vector<std::string> aliases;            // other global names of the same shared parameter
  std::vector<std::string> partial_axes = {};  // along which ranks have parts of its gradient: their sum is it
  axis::View view = axis::View::kDense;        // whose axes these are

  // The cut over that axis alone or among others, or one that cuts nothing.
  const ShardSpec& along(const std::string& axis) const;
  // Ranks share some elements that a cut gives them.
  bool overlaps() const;
  // The axes of all cuts, none twice.
  std::vector<std::string> cut_axes() const;
  // A later cut goes by the ranges that cut `i` leaves: of the same dim, or of rows.
  bool is_cut_again(std::size_t i) const;
  Shape local_shape(const Coordinates& coordinates) const;
  // The axes over which the gradient must be summed, sorted: those of the batch in its view (the mesh's batch_axes)
  // along which it is not cut, and those where it is a partial sum.
  std::vector<std::string> gradient_axes(const std::vector<std::string>& batch_axes) const;
  // True on the one rank among replicas (pp of a shared parameter, the axes that don't cut it) that counts it: lowest
  // stage, coordinate 0 of every axis of its view that replicates it. Such a rank counts the elements that it owns.
  bool counted_by(const Coordinates& coordinates, const std::vector<int>& held_stages) const;
};

// The cuts as one rank has them: what it holds, or without what a lower rank holds too.
std::vector<AppliedShard> held_shards(const Placement& placement, const Coordinates& coordinates);
std::vector<AppliedShard> owned_shards(const Placement& placement, const Coordinates& coordinates);
Slice held_slice(const Placement& placement, const Coordinates& coordinates);
Slice owned_slice(const Placement& placement, const Coordinates& coordinates);

}  // namespace gantry
