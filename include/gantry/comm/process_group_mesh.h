// The process groups of a mesh: one for every axis, one for each set of axes that the job needs (Mesh::group_sets), and
// the whole world.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/world.h"
#include "gantry/core/shard_spec.h"

namespace gantry {

class ProcessGroupMesh {
 public:
  // Collective over the world; makes every group in one fixed order. No getter communicates.
  explicit ProcessGroupMesh(World& world);

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return rank_; }  // world rank
  int coordinate(const std::string& axis) const { return mesh_.coordinate(rank_, axis); }
  const Coordinates& coordinates() const { return coordinates_; }  // this rank's, by axis, of both views
  int size(const std::string& axis) const { return mesh_.axis_size(axis); }

  // The group along one axis. ConfigError for an unknown axis, naming the known ones.
  ProcessGroup& group(const std::string& axis) const;
  ProcessGroup& operator[](const std::string& axis) const { return group(axis); }
  // The group along a set of axes, in any order. ConfigError for a set that has none, naming those that have.
  ProcessGroup& group(std::vector<std::string> axes) const;
  ProcessGroup& world_group() const;
  // The ranks that see other parts of the batch and else are as this one: along the batch axes of a view, and along
  // `and_axis` too where it is given.
  ProcessGroup& batch_group(axis::View view = axis::View::kDense) const { return group(mesh_.batch_axes(view)); }
  ProcessGroup& batch_group_and(const std::string& and_axis) const;

  // A further group, for any set of world ranks. Collective over the world: every rank passes the same list of sets and
  // gets the group of the set it is in, nullptr where it is in none; sets may overlap.
  std::vector<std::unique_ptr<ProcessGroup>> make_groups(const std::string& label,
                                                         const std::vector<std::vector<int>>& rank_sets) const;
  // The same of sets of which no rank is in two: the group of this rank's, nullptr where it is in none.
  std::unique_ptr<ProcessGroup> make_group(const std::string& label,
                                           const std::vector<std::vector<int>>& rank_sets) const;

 private:
  Backend& backend_;
  Mesh mesh_;
  int rank_;
  Coordinates coordinates_;
  std::map<std::vector<std::string>, std::unique_ptr<ProcessGroup>> groups_;  // by sorted axes
};

}  // namespace gantry
