// Parameters of which each replica holds rows (ZeRO 3), and their memory while they are unsharded. Parameters form
// units that are gathered by one message and released together: those of a layer, the embedding, the head (tied they
// are one, which is unsharded twice in a forward), and of each stage what else lies outside of layers (the final norm).
// What experts over ranks have are units of their own, since other ranks share them. A module's parameters stay the
// same tensors: their memory comes and goes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/sharding/row_shards.h"
#include "gantry/optimizers/sharded_unit.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

class ParameterShards {
 public:
  // In place of a layer's number: what is used beside layers, before them alone, after them alone, and before the first
  // stage's and after the last one's (a tie).
  static constexpr int kNoLayer = -1, kBeforeLayers = -2, kAfterLayers = -3, kAroundLayers = -4;

  // `parameters`: by placements that end with the row shard, and the module's own tensors, which hold these rows; each
  // becomes the rows alone, and the module's tensor gets the full shape and memory that is away. `layers`: of each
  // parameter, counted over all lists, or one of these. The mesh is not owned. Collective over the world.
  ParameterShards(std::vector<HeldTensor>& parameters, const std::vector<int>& layers, const RowShards& rows,
                  const ProcessGroupMesh& mesh);

  // The batch ranks of a view, and what of a parameter each of them holds.
  struct Holders {
    ViewShards rows;
    int part = 0;                             // this rank's
    std::unique_ptr<ProcessGroup> gathering;  // the ranks that hold one copy
    std::unique_ptr<ProcessGroup> replicas;   // those that hold this rank's part; null where it is the only one
    std::vector<int> parts_of_gathering;      // in the group's order
    // The part that each rank of the batch group holds, and which of its replicas that is, in the group's order.
    std::vector<int> parts_of_batch, replicas_of_batch;
  };
  const Holders& holders(int unit) const { return holders_.at(views_[unit]); }

  // By parameter, in the order of `parameters`.
  const HeldTensor& shard(std::size_t parameter) const { return members_[parameter].shard; }
  const HeldTensor& full(std::size_t parameter) const { return members_[parameter].full; }  // by the placement without
  const Range& elements(std::size_t parameter, int part) const { return members_[parameter].parts[part]; }
  int unit(std::size_t parameter) const { return members_[parameter].unit; }
  const std::vector<HeldTensor>& unsharded() const { return unsharded_; }

  // --- Units ---
  int count() const { return static_cast<int>(units_.size()); }
  // Of a stage that this rank holds: those used beside, before and after its layers, and a layer's; empty where it has
  // no parameters.
  const std::vector<int>& outside_of_layers(int stage) const;
  const std::vector<int>& before_layers(int stage) const;
  const std::vector<int>& after_layers(int stage) const;
  const std::vector<int>& of_layer(int layer) const;
  std::vector<int> of_stage(int stage) const;  // in the order of their first use

  // Posts the gather, unless the unit is unsharded or on its way. Collective over the ranks that hold other parts.
  void start(int unit) { units_[unit]->start(); }
  // Afterwards it is unsharded. Starts what was not started.
  void wait(int unit) { units_[unit]->wait(); }
  void release(int unit) { units_[unit]->release(); }
  bool is_full(int unit) const { return units_[unit]->is_full(); }

  // Rows of parameters that something else has too, of a wider type: `has` tells which, and `write` writes them. It
  // outlives this, or the next keep_rows().
  struct OtherHolder {
    std::function<bool(std::size_t parameter)> has;
    std::function<void(std::size_t parameter, torch::Tensor& rows)> write;
  };
  // Until keep_rows(), rows of units that the other one has whole take memory only while a gather reads them.
  void release_shard(const OtherHolder& other);
  void keep_rows();
  bool has_rows(std::size_t parameter) const { return units_[members_[parameter].unit]->has_rows(); }

 private:
  struct Member {
    HeldTensor shard, full;
    std::vector<Range> parts;  // of the flattened whole, by part
    int unit = 0;
  };
  struct UnitKey {
    std::vector<int> stages;
    int layer;
    axis::View view;
    torch::ScalarType type;
    auto operator<=>(const UnitKey&) const = default;  // NOLINT(modernize-use-nullptr): of std::vector's
  };

  Holders make_holders(axis::View view, const ViewShards& rows) const;
  void note(int unit, int layer, const std::vector<int>& stages);
  void make_member(const HeldTensor& parameter);
  void make_unit(const std::vector<std::size_t>& parameters);

  const ProcessGroupMesh& mesh_;
  std::map<axis::View, Holders> holders_;
  std::vector<Member> members_;
  std::vector<HeldTensor> unsharded_;
  std::vector<std::unique_ptr<ShardedUnit>> units_;
  std::vector<std::vector<std::size_t>> parameters_of_;                  // by unit
  std::map<int, std::vector<int>> outside_, before_, after_, of_layer_;  // by stage; by layer
  std::vector<int> first_stage_;                                         // by unit
  std::vector<axis::View> views_;                                        // likewise
};

}  // namespace gantry
