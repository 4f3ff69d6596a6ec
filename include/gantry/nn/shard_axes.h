// The mesh axes that a module is sharded over, with the group of ranks along them.
#pragma once

#include <string>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/shard_spec.h"

namespace gantry {

class ProcessGroupMesh;

class ShardAxes {
 public:
  // The tp axis: `mesh["tp"]` converts to it. The group must outlive all modules that are sharded over it; this applies
  // to all constructors.
  ShardAxes(ProcessGroup& group);  // NOLINT(google-explicit-constructor)
  // One axis with this name; `group` contains the ranks along it.
  ShardAxes(std::string axis, ProcessGroup& group);
  // One axis of a mesh, or several whose ranks are counted together, in the order of the mesh, whatever the order of
  // the names. Throws ConfigError for an unknown axis, for axes of both views, and for a set without a process group;
  // the error lists the sets that have one.
  ShardAxes(const ProcessGroupMesh& mesh, const std::vector<std::string>& names);

  const std::vector<Axis>& axes() const { return axes_; }  // outermost first
  // The ranks along the axes, in the order of the axes.
  ProcessGroup& group() const { return *group_; }
  int ranks() const { return group_->size(); }
  int rank() const { return group_->rank(); }  // index of this rank in the group
  // Returns `shard` with these axes, for the placements that a module returns.
  ShardSpec over(ShardSpec shard) const;

 private:
  std::vector<Axis> axes_;
  ProcessGroup* group_;
};

}  // namespace gantry
