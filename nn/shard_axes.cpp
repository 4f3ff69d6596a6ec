#include "gantry/nn/shard_axes.h"

#include <algorithm>

#include "gantry/comm/process_group_mesh.h"

namespace gantry {

ShardAxes::ShardAxes(ProcessGroup& group) : ShardAxes(axis::kTensor, group) {}

ShardAxes::ShardAxes(std::string axis, ProcessGroup& group) : axes_{{std::move(axis), group.size()}}, group_(&group) {}

ShardAxes::ShardAxes(const ProcessGroupMesh& mesh, const std::vector<std::string>& names) : group_(&mesh.group(names)) {
  // An axis that both views have (pp) comes once.
  for (const auto view : {axis::View::kDense, axis::View::kExpert})
    for (const Axis& axis : mesh.mesh().axes(view))
      if (std::ranges::count(names, axis.name) > 0 && std::ranges::count(axes_, axis) == 0) axes_.push_back(axis);
}

ShardSpec ShardAxes::over(ShardSpec shard) const {
  shard.axes = axes_;
  return shard;
}

}  // namespace gantry
