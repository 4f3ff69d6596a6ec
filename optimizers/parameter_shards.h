// Parameters of which each replica holds a local shard (ZeRO 3), and their memory while they are unsharded.
// Parameters form units that are gathered by one message and released together: those of a layer, the
// embedding, the head, and in each stage the other parameters outside of layers (the final norm). A tied
// embedding and head form one unit, which is gathered twice in each forward. Experts that are distributed
// over ranks form separate units, because other ranks share them. The module's parameters remain the same
// tensors; only their memory is allocated and released.
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
  // Values in place of a layer's number, for parameters outside of layers. Those of kBeforeLayers and
  // kAfterLayers are used only before or only after the layers. Those of kAroundLayers are used before the
  // layers of the first stage and after those of the last one (a tie). All others have kNoLayer.
  static constexpr int kNoLayer = -1, kBeforeLayers = -2, kAfterLayers = -3, kAroundLayers = -4;

  // `parameters`: the module's own tensors, which hold this rank's rows, with placements that end with the
  // row shard. Each entry is replaced by a tensor of the rows; the module's tensor gets the full shape, and
  // its memory is released. `layers`: for each parameter its layer, counted over all lists, or one of the
  // values above. The mesh is not owned. Collective over the world.
  ParameterShards(std::vector<HeldTensor>& parameters, const std::vector<int>& layers, const RowShards& rows,
                  const ProcessGroupMesh& mesh);

  // The batch ranks of a view, and the part of a parameter that each of them holds.
  struct Holders {
    ViewShards rows;
    int part = 0;                             // the part of this rank
    std::unique_ptr<ProcessGroup> gathering;  // the ranks that together hold one copy
    std::unique_ptr<ProcessGroup> replicas;   // the ranks with this rank's part; null if it is the only one
    std::vector<int> parts_of_gathering;      // by rank of `gathering`
    // By rank of the batch group: the part that it holds, and its index among the replicas of this part.
    std::vector<int> parts_of_batch, replicas_of_batch;
  };
  const Holders& holders(int unit) const { return holders_.at(views_[unit]); }

  // By parameter, in the order of `parameters`.
  const HeldTensor& shard(std::size_t parameter) const { return members_[parameter].shard; }
  // Placement: without the row shard.
  const HeldTensor& full(std::size_t parameter) const { return members_[parameter].full; }
  const Range& elements(std::size_t parameter, int part) const { return members_[parameter].parts[part]; }
  int unit(std::size_t parameter) const { return members_[parameter].unit; }
  const std::vector<HeldTensor>& unsharded() const { return unsharded_; }

  // --- Units ---
  int count() const { return static_cast<int>(units_.size()); }
  // Units of a stage that this rank holds, outside of layers: used at any time, before and after the layers;
  // and the units of a layer. Empty if there are no parameters.
  const std::vector<int>& outside_of_layers(int stage) const;
  const std::vector<int>& before_layers(int stage) const;
  const std::vector<int>& after_layers(int stage) const;
  const std::vector<int>& of_layer(int layer) const;
  std::vector<int> of_stage(int stage) const;  // in the order of their first use

  // Posts the gather, unless the unit is unsharded or its gather is in flight. Collective over the ranks that
  // hold other parts.
  void start(int unit) { units_[unit]->start(); }
  // Waits until the unit is unsharded. Posts the gather if start() was not called.
  void wait(int unit) { units_[unit]->wait(); }
  void release(int unit) { units_[unit]->release(); }
  bool is_full(int unit) const { return units_[unit]->is_full(); }

  // Another holder of the rows of some parameters, in a wider type. `has` returns whether it holds the rows
  // of a parameter, and `write` writes them. It must outlive this object, or stay valid until the next
  // keep_rows().
  struct OtherHolder {
    std::function<bool(std::size_t parameter)> has;
    std::function<void(std::size_t parameter, torch::Tensor& rows)> write;
  };
  // Until keep_rows(), the rows of a unit take memory only while a gather reads them, if the other holder has
  // all of them.
  void release_shard(const OtherHolder& other);
  void keep_rows();
  bool has_rows(std::size_t parameter) const { return units_[members_[parameter].unit]->has_rows(); }

 private:
  struct Member {
    HeldTensor shard, full;
    std::vector<Range> parts;  // ranges of the flattened full tensor, by part
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
  std::vector<axis::View> views_;                                        // by unit
};

}  // namespace gantry
