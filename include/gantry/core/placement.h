// How one parameter is placed on the mesh. The code that shards the parameter sets it once. Slices, gradient
// reductions, the gradient norm, checkpoints and initial weights are derived from it.
#pragma once

#include "gantry/core/slice.h"

namespace gantry {

// The name, shape and sharding of a parameter.
struct Placement {
  std::string name;  // global name: "h.7.mlp.up.weight"
  Shape global_shape;
  // The sharding steps, in order; each applies to the result of the previous one. The parameter is replicated over the
  // axes that no step names.
  std::vector<ShardSpec> shards;
  std::vector<int> stages;           // stages that hold the parameter, ascending; several if it is shared
  std::vector<std::string> aliases;  // other global names of the same shared parameter
  // Axes along which each rank has a summand of the gradient, so that the gradient is the sum over their ranks.
  std::vector<std::string> partial_axes = {};
  axis::View view = axis::View::kDense;  // the view that all axes belong to

  // The step that shards over this axis, alone or together with others. If there is none, a ShardSpec that is not
  // sharded.
  const ShardSpec& along(const std::string& axis) const;
  // True if ranks share elements in one of the steps.
  bool overlaps() const;
  // The axes of all steps, each once.
  std::vector<std::string> sharded_axes() const;
  // True if a later step depends on the ranges of step `i`, because it shards the same dimension, or rows.
  bool is_sharded_again(std::size_t i) const;
  Shape local_shape(const Coordinates& coordinates) const;
  // Returns the axes over which the gradient has to be reduced, sorted: `batch_axes` (Mesh::batch_axes of the view)
  // along which the parameter is not sharded, and `partial_axes`.
  std::vector<std::string> gradient_axes(const std::vector<std::string>& batch_axes) const;
  // True on the single rank of a set of replicas that counts the parameter, for example in the gradient norm. It holds
  // the lowest stage and has coordinate 0 on every replicating axis of the view. It counts the elements that it owns.
  bool counted_by(const Coordinates& coordinates, const std::vector<int>& held_stages) const;
};

// The steps as applied on one rank: with all elements that it holds, or without those that a lower rank holds too.
std::vector<AppliedShard> held_shards(const Placement& placement, const Coordinates& coordinates);
std::vector<AppliedShard> owned_shards(const Placement& placement, const Coordinates& coordinates);
Slice held_slice(const Placement& placement, const Coordinates& coordinates);
Slice owned_slice(const Placement& placement, const Coordinates& coordinates);

}  // namespace gantry
