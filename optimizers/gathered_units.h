// Gathers each of several sharded tensors on one rank, and scatters it again: for an optimizer that needs
// full rows or matrices (OptimizerUnit). The holder of a tensor is one of the ranks over which it is sharded,
// chosen so that the work of a step is balanced. A rank sends all parts for a holder in one message.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/slice.h"
#include "gantry/optimizers/optimizer_tensors.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

// True if the sharding divides units of this kind.
bool divides_units(const Placement& placement, OptimizerUnit unit);

class GatheredUnits {
 public:
  struct Item {
    Placement placement;        // placement of the parts
    std::int64_t work = 0;      // cost of a step of the full tensor, relative to other items
    torch::ScalarType dtype{};  // type in which parts are sent
  };

  // The mesh is not owned.
  explicit GatheredUnits(const ProcessGroupMesh& mesh) : mesh_(mesh) {}

  // Returns the number of the first item; the others follow it. All ranks of a stage add the same items in
  // the same order. Collective over the axes that shard them.
  std::size_t add(std::vector<Item> items);

  bool held_here(std::size_t item) const;
  // Placement of the full tensor: the holder has all of it, the other ranks an empty part.
  Placement held_placement(std::size_t item) const;

  struct Move {
    std::size_t item = 0;
    torch::Tensor part;  // the part of this rank
    torch::Tensor full;  // the full tensor if this rank holds it; else undefined or empty
  };
  // bring_together() copies the parts of all ranks to the full tensors of the holders; hand_out() copies them
  // back. All ranks pass the same items in the same order. Collective over the axes that shard them; complete
  // on return.
  void bring_together(const std::vector<Move>& moves) const;
  void hand_out(const std::vector<Move>& moves) const;

 private:
  struct Known {
    Item item;
    ProcessGroup* group = nullptr;
    int holder = 0;            // rank in the group
    std::vector<Slice> parts;  // by rank of the group
  };
  // For a move and a rank of the group: the tensor to send (undefined: nothing), the number of elements to
  // receive, and the function that takes the received elements.
  struct Exchange {
    std::function<torch::Tensor(const Move&, int)> sent;
    std::function<std::int64_t(const Move&, int)> expected;
    std::function<void(const Move&, int, const torch::Tensor&)> take;
  };

  void learn_parts(ProcessGroup& group, const std::vector<Known*>& items) const;
  void exchange(const std::vector<Move>& moves, const Exchange& how) const;

  const ProcessGroupMesh& mesh_;
  std::vector<Known> items_;
  std::map<std::vector<std::string>, std::vector<std::int64_t>> work_;  // by axes: the work of each rank
};

}  // namespace gantry
