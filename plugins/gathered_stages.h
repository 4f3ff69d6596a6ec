// Runs a schedule's actions on parameters that are sharded over replicas: gathers the parameters, and reduces
// their gradients. If they are unsharded for one computation only, this is done layer by layer: a layer is
// gathered while the previous one is computed, in forward and backward.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "gantry/nn/layer_watch.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/optimizers/master_parameters.h"
#include "gantry/optimizers/parameter_shards.h"
#include "gantry/policies/sharder.h"
#include "gantry/schedule/action.h"

namespace gantry {

// For each parameter that the module holds: the number of the layer that it belongs to, counted over all
// lists, or a value of ParameterShards. The policy defines the embedding and the head. kNoLayer: parameters
// that are outside of both, or in several places other than these two.
std::vector<int> layers_of_parameters(const StageModule& module);

class GatheredStages final : public LayerWatch {
 public:
  // Owns neither argument. The layers of each stage are the module's.
  GatheredStages(ParameterShards& shards, const StageModule& module) : shards_(shards), module_(module) {}

  struct Step {
    // A stage is unsharded for one computation, and each layer only for its own part of it.
    bool layer_by_layer = false;
    GradientBuffers* gradients = nullptr;  // null: no gradients are computed; not owned
    bool reduces = false;  // REDUCE_GRAD reduces them; otherwise they accumulate with those of later calls
  };
  void begin(const Step& step);

  // UNSHARD, RESHARD, REDUCE_GRAD. Collective over the batch axes, except for RESHARD.
  void run(const schedule::Action& action);

  enum class Kind { kForward, kBackward, kWeights };
  // Called before and after each computation of a stage. `is_last`: its gradients are complete afterwards.
  void begin(int stage, Kind kind, bool is_last);
  void end();

  // From here on, rows that masters have in a wider type take memory only while a gather reads them.
  // Collective like MasterParameters. The masters must outlive this object.
  void release_shard(MasterParameters& masters);

  // Gathers all parameters of `stages`, and keeps them unsharded until the returned object is destroyed.
  std::shared_ptr<void> gather_all(const std::vector<int>& stages);

  void before_forward(int layer) override;
  void after_forward(int layer) override;
  void before_backward(int layer) override;
  void after_backward(int layer) override;

 private:
  void start(const std::vector<int>& units);
  void wait(const std::vector<int>& units);
  void release(const std::vector<int>& units);
  void open(const std::vector<int>& units);
  void start_layer(int layer);
  void reduce(const std::vector<int>& units);
  LayerRange layers() const;  // layers of the current stage

  ParameterShards& shards_;
  const StageModule& module_;
  Step step_;
  std::set<int> unsharded_;  // stages between UNSHARD and RESHARD
  int stage_ = -1;           // the stage that is computed; -1: none
  bool is_last_ = false;
};

}  // namespace gantry
