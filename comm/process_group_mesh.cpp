#include "gantry/comm/process_group_mesh.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/error.h"

namespace gantry {

ProcessGroupMesh::ProcessGroupMesh(World& world) : backend_(world.backend()), mesh_(world.mesh()), rank_(world.rank()) {
  for (const auto view : {axis::View::kDense, axis::View::kExpert})
    coordinates_.merge(mesh_.coordinates_by_axis(rank_, view));
  for (auto& names : mesh_.group_sets()) {  // in the same order on all ranks
    const std::string label = fmt::format("{}", fmt::join(names, "+"));
    auto group = backend_.make_group(label, mesh_.ranks_along(rank_, names));
    std::sort(names.begin(), names.end());
    groups_[names] = std::move(group);
  }
}

ProcessGroup& ProcessGroupMesh::group(const std::string& axis) const {
  mesh_.axis_size(axis);
  return *groups_.at({axis});
}

ProcessGroup& ProcessGroupMesh::group(std::vector<std::string> axes) const {
  std::sort(axes.begin(), axes.end());
  // With the expert axes: the same ranks in the same order as within_stage(), under other names.
  if (mesh_.has_expert_view() && axes == std::vector<std::string>{axis::kExpertData, axis::kExpert}) {
    axes = mesh_.within_stage();
    std::sort(axes.begin(), axes.end());
  }
  if (const auto found = groups_.find(axes); found != groups_.end()) return *found->second;
  throw ConfigError({"mesh", fmt::format("there is no group along {{{}}}", fmt::join(axes, ", ")),
                     "distinct axes of " + mesh_.describe() + ": the batch axes together, or one axis", ""});
}

ProcessGroup& ProcessGroupMesh::world_group() const {
  std::vector<std::string> all;
  for (const auto& axis : mesh_.axes()) all.push_back(axis.name);
  return group(all);
}

ProcessGroup& ProcessGroupMesh::batch_group_and(const std::string& and_axis) const {
  auto axes = mesh_.batch_axes();
  axes.push_back(and_axis);
  return group(std::move(axes));
}

std::vector<std::unique_ptr<ProcessGroup>> ProcessGroupMesh::make_groups(
    const std::string& label, const std::vector<std::vector<int>>& rank_sets) const {
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  for (const auto& ranks : rank_sets) {
    const bool member = std::find(ranks.begin(), ranks.end(), rank_) != ranks.end();
    groups.push_back(member ? backend_.make_group(label, ranks) : nullptr);
  }
  return groups;
}

std::unique_ptr<ProcessGroup> ProcessGroupMesh::make_group(const std::string& label,
                                                           const std::vector<std::vector<int>>& rank_sets) const {
  std::unique_ptr<ProcessGroup> own;
  for (auto& group : make_groups(label, rank_sets))
    if (group) own = std::move(group);
  return own;
}

}  // namespace gantry
