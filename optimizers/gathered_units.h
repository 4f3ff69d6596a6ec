// Tensors that ranks hold parts of, brought to one rank of them and back: for an optimizer that must see full rows or
// matrices (OptimizerUnit). Each has one holder among the ranks over whose axes it is sharded, chosen so that the work
// of a step is spread evenly over them. All parts of a group of ranks travel in one message to each holder.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/slice.h"
#include "gantry/optimizers/optimizer_tensors.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

// A shard has parts of such units.
bool divides_units(const Placement& placement, OptimizerUnit unit);

class GatheredUnits {
 public:
  struct Item {
    Placement placement;        // of the parts
    std::int64_t work = 0;      // cost of a step of the full tensor, relative to other items
    torch::ScalarType dtype{};  // in which parts travel
  };

  // The mesh is not owned.
  explicit GatheredUnits(const ProcessGroupMesh& mesh) : mesh_(mesh) {}

  // Gives the number of the first of them; the others follow it. All ranks of a stage add the same items, in the same
  // order. Collective over the axes that shard them.
  std::size_t add(std::vector<Item> items);

  bool held_here(std::size_t item) const;
  // How the whole lies: the holder has all of it, the others an empty part.
  Placement held_placement(std::size_t item) const;

  struct Move {
    std::size_t item = 0;
    torch::Tensor part;  // this rank's, of the part's elements
    torch::Tensor full;  // the full tensor if this rank holds it; else undefined or empty
  };
  // The holders' wholes take every rank's parts; every rank's parts take the holders' wholes. The same items on all
  // ranks, in the same order. Collective over the axes that shard them; complete on return.
  void bring_together(const std::vector<Move>& moves) const;
  void hand_out(const std::vector<Move>& moves) const;

 private:
  struct Known {
    Item item;
    ProcessGroup* group = nullptr;
    int holder = 0;            // of the group
    std::vector<Slice> parts;  // by rank of the group
  };
  // What this rank sends to a rank of the group (undefined: nothing), how many elements come from it, and what becomes
  // of them.
  struct Exchange {
    std::function<torch::Tensor(const Move&, int)> sent;
    std::function<std::int64_t(const Move&, int)> expected;
    std::function<void(const Move&, int, const torch::Tensor&)> take;
  };

  void learn_parts(ProcessGroup& group, const std::vector<Known*>& items) const;
  void exchange(const std::vector<Move>& moves, const Exchange& how) const;

  const ProcessGroupMesh& mesh_;
  std::vector<Known> items_;
  std::map<std::vector<std::string>, std::vector<std::int64_t>> work_;  // by axes: what each rank has to do
};

}  // namespace gantry
