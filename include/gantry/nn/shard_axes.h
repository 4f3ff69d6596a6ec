// What a module is split over: axes of the mesh, and the ranks along them.
#pragma once

#include <string>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/shard_spec.h"

namespace gantry {

class ProcessGroupMesh;

class ShardAxes {
 public:
  // Tp alone: a mesh's group of it, `mesh["tp"]`, stands for its axis. The group outlives whoever is split over it,
  // here and below.
  ShardAxes(ProcessGroup& group);  // NOLINT(google-explicit-constructor)
  // One axis of that name, of which `group` has the ranks.
  ShardAxes(std::string axis, ProcessGroup& group);
  // One axis of a mesh, or several that count its ranks together: in the mesh's order, whatever the order of the names.
  // ConfigError for an unknown axis, for axes of two views, and for a set that has no group, naming those that have.
  ShardAxes(const ProcessGroupMesh& mesh, const std::vector<std::string>& names);

  const std::vector<Axis>& axes() const { return axes_; }  // outermost first
  // The ranks along them, in the order in which the axes count them.
  ProcessGroup& group() const { return *group_; }
  int ranks() const { return group_->size(); }
  int rank() const { return group_->rank(); }  // this one's among them
  // That cut over these axes: what the placements that a module gives are made of.
  ShardSpec over(ShardSpec cut) const;

 private:
  std::vector<Axis> axes_;
  ProcessGroup* group_;
};

}  // namespace gantry
