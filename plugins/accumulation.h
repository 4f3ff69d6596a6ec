// The gradients of one boosted model from the first execute_pipeline after a step to the sync. The loss's gradient is
// seeded with what is known beforehand, 1 / (expected tokens), so that backwards need not wait for each other's counts;
// the sync multiplies by expected / counted.
#pragma once

#include <memory>

#include "gantry/plugins/boosted.h"
#include "gantry/tensors/batch.h"

namespace gantry {

class Accumulation {
 public:
  // The model and the mesh are not owned.
  Accumulation(std::shared_ptr<BoostedOptimizer> optimizer, const StageModule& model, const ProcessGroupMesh& mesh)
      : optimizer_(std::move(optimizer)), model_(model), mesh_(mesh) {}

  bool under_way() const { return under_way_; }
  // Before each execute_pipeline that trains: begins an accumulation unless one is under way, and brings in parameters
  // that have come to require a gradient. `step_tokens`: as ExecuteOptions has it. UsageError where another optimizer
  // has removed gradients that were to be stepped, and where the calls of a step don't state one number of tokens.
  void take(const Batch& batch, std::int64_t step_tokens);
  // After it. `counted`: tokens of this rank's last stage.
  void add(std::int64_t global_samples, std::int64_t counted);

  // Sums the gradients; `counted`: tokens of all ranks. InputError where no label of the first step is counted, and
  // UsageError where others were stated than counted. Collective over the world.
  void finish(double counted);
  // Drops the gradients. Reductions that are under way on some ranks end on all of them. Collective over the world.
  void give_up();

  GradientBuffers& gradients() { return optimizer_->gradients(); }
  double seed() const { return loss_scale_ / expected_tokens_; }  // the gradient of the loss's sum
  std::int64_t counted() const { return counted_; }               // on this rank, by now
  std::int64_t step() const { return step_; }                     // as the optimizer counts them
  std::int64_t samples_of_step() const { return samples_; }       // global samples seen since its last step

 private:
  void begin(const Batch& batch, std::int64_t step_tokens);
  void look_at_unused_gradients(bool removed);
  void look_at_first_step(double counted);

  std::shared_ptr<BoostedOptimizer> optimizer_;
  const StageModule& model_;
  const ProcessGroupMesh& mesh_;
  double expected_tokens_ = 1;
  std::int64_t stated_tokens_ = 0;  // of the step; 0: none
  double loss_scale_ = 1;
  std::int64_t counted_ = 0, step_ = 0, samples_ = 0;
  bool under_way_ = false;
  bool has_counted_ = false;  // a step had labels that count
  bool said_unused_ = false;  // that gradients were added to others which nothing had stepped
};

}  // namespace gantry
