// The process groups of a mesh: one for every axis, the axis sets that gradients and norms need, and the whole world.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/world.h"

namespace gantry {

class ProcessGroupMesh {
 public:
  // Collective over the world; makes every group in one fixed order. No getter communicates.
  explicit ProcessGroupMesh(World& world);

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return rank_; }  // world rank
  int coordinate(const std::string& axis) const { return mesh_.coordinate(rank_, axis); }
  std::map<std::string, int> coordinates() const;  // this rank's, by axis
  int size(const std::string& axis) const { return mesh_.axis_size(axis); }

  // The group along one axis. ConfigError for an unknown axis, naming the known ones.
  ProcessGroup& group(const std::string& axis) const;
  ProcessGroup& operator[](const std::string& axis) const { return group(axis); }
  // The group along a set of axes, in any order. ConfigError for a set that has none, naming those that have.
  ProcessGroup& group(std::vector<std::string> axes) const;
  ProcessGroup& world_group() const;

  // A further group, for any set of world ranks. Collective over the world: every rank passes the same list of sets and
  // gets the group of the set it is in, nullptr where it is in none; sets may overlap.
  std::vector<std::unique_ptr<ProcessGroup>> make_groups(const std::string& label,
                                                         const std::vector<std::vector<int>>& rank_sets) const;

 private:
  Backend& backend_;
  Mesh mesh_;
  int rank_;
  std::map<std::vector<std::string>, std::unique_ptr<ProcessGroup>> groups_;  // by sorted axes
};

}  // namespace gantry
