#include "gantry/comm/process_group_mesh.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/error.h"

namespace gantry {

ProcessGroupMesh::ProcessGroupMesh(World& world) : backend_(world.backend()), mesh_(world.mesh()), rank_(world.rank()) {
  // Every subset of the axes, in the order of a binary count: the same on all ranks. The last is the whole world.
  const auto& axes = mesh_.axes();
  for (unsigned subset = 1; subset < (1u << axes.size()); ++subset) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < axes.size(); ++i)
      if (subset & (1u << i)) names.push_back(axes[i].name);
    std::string label = fmt::format("{}", fmt::join(names, "+"));
    std::sort(names.begin(), names.end());
    groups_[names] = backend_.make_group(label, mesh_.ranks_along(rank_, names));
  }
}

std::map<std::string, int> ProcessGroupMesh::coordinates() const {
  std::map<std::string, int> coordinates;
  for (const auto& axis : mesh_.axes()) coordinates[axis.name] = coordinate(axis.name);
  return coordinates;
}

ProcessGroup& ProcessGroupMesh::group(const std::string& axis) const {
  mesh_.axis_size(axis);
  return *groups_.at({axis});
}

ProcessGroup& ProcessGroupMesh::group(std::vector<std::string> axes) const {
  std::sort(axes.begin(), axes.end());
  if (const auto found = groups_.find(axes); found != groups_.end()) return *found->second;
  throw ConfigError({"mesh", fmt::format("there is no group along {{{}}}", fmt::join(axes, ", ")),
                     "a set of distinct axes of " + mesh_.describe(), ""});
}

ProcessGroup& ProcessGroupMesh::world_group() const {
  std::vector<std::string> all;
  for (const auto& axis : mesh_.axes()) all.push_back(axis.name);
  return group(all);
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

}  // namespace gantry
