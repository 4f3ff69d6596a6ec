// Runs a schedule's actions on parameters that are sharded over replicas: gathers them, layer by layer where they are
// whole for one computation alone, and sums gradients. A layer is gathered while the one before it is computed, forward
// and backward.
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

// Of each parameter that the module holds, the one layer that it is part of, counted over all lists. Else one of
// ParameterShards': the policy says what embedding and head are; kNoLayer for all that lies outside of both, or in
// several places other than these two.
std::vector<int> layers_of_parameters(const StageModule& module);

class GatheredStages final : public LayerWatch {
 public:
  // Nothing is owned. The layers of each stage are the module's.
  GatheredStages(ParameterShards& shards, const StageModule& module) : shards_(shards), module_(module) {}

  struct Step {
    bool layer_by_layer = false;  // a stage is unsharded for one computation: each layer for its own part of it
    GradientBuffers* gradients = nullptr;  // null: none are computed; not owned
    bool reduces = false;                  // REDUCE_GRAD sums them; else they add up with those of later calls
  };
  void begin(const Step& step);

  // UNSHARD, RESHARD, REDUCE_GRAD. Collective over the batch axes but for RESHARD.
  void run(const schedule::Action& action);

  enum class Kind { kForward, kBackward, kWeights };
  // Around each computation of a stage. `is_last`: its gradients are unsharded afterwards.
  void begin(int stage, Kind kind, bool is_last);
  void end();

  // From here on, rows that masters have in a wider type take memory only while a gather reads them. Collective as
  // masters are, which outlive this.
  void release_shard(MasterParameters& masters);

  // Parameters of all held stages are unsharded while what it gives is kept.
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
  LayerRange layers() const;  // of the stage that is computed

  ParameterShards& shards_;
  const StageModule& module_;
  Step step_;
  std::set<int> unsharded_;  // stages between UNSHARD and RESHARD
  int stage_ = -1;           // the one that is computed
  bool is_last_ = false;
};

}  // namespace gantry
