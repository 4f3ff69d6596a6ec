// The process groups of a mesh: one for every axis, one for each set of axes in Mesh::group_sets(), and the world.
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
  // Creates all groups in a fixed order. Collective over the world. Getters do not communicate.
  explicit ProcessGroupMesh(World& world);

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return rank_; }  // world rank
  int coordinate(const std::string& axis) const { return mesh_.coordinate(rank_, axis); }
  const Coordinates& coordinates() const { return coordinates_; }  // coordinates of this rank, by axis of both views
  int size(const std::string& axis) const { return mesh_.axis_size(axis); }

  // The group along one axis. Throws ConfigError with the known names if the axis is unknown.
  ProcessGroup& group(const std::string& axis) const;
  ProcessGroup& operator[](const std::string& axis) const { return group(axis); }
  // The group along a set of axes, in any order. Throws ConfigError if this set has no group; the error lists those
  // that have one.
  ProcessGroup& group(std::vector<std::string> axes) const;
  ProcessGroup& world_group() const;
  // The ranks that differ from this one only in the batch axes of a view, and in `and_axis` if given. They process
  // different parts of the batch.
  ProcessGroup& batch_group(axis::View view = axis::View::kDense) const { return group(mesh_.batch_axes(view)); }
  ProcessGroup& batch_group_and(const std::string& and_axis) const;

  // Creates further groups for sets of world ranks, which may overlap. Every rank must pass the same list of sets. The
  // result has one entry per set: the group if this rank is a member, or else null. Collective over the world.
  std::vector<std::unique_ptr<ProcessGroup>> make_groups(const std::string& label,
                                                         const std::vector<std::vector<int>>& rank_sets) const;
  // The same for disjoint sets: returns the group that this rank is in, or null.
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
