// The counts of one boosted model from the first execute_pipeline() after a step to the sync. The gradient of the loss
// is seeded with 1 / (expected tokens), which all ranks know before the backward passes; the sync multiplies by
// expected / counted. BoostedOptimizer::state() shows whether gradients are accumulating.
#pragma once

#include <memory>

#include "gantry/plugins/boosted.h"

namespace gantry {

class Accumulation {
 public:
  // The model and the mesh are not owned.
  Accumulation(std::shared_ptr<BoostedOptimizer> optimizer, const StageModule& model, const ProcessGroupMesh& mesh)
      : optimizer_(std::move(optimizer)), model_(model), mesh_(mesh) {}

  bool under_way() const { return optimizer_->state() == BoostedOptimizer::Gradients::kAdding; }
  // Prepares the gradients for a call. First, gradients of a call that threw are dropped, and so are accumulated ones
  // that the program has removed from all parameters. under_way() is then final for the call.
  void prepare();
  // Before each execute_pipeline() that trains: begins an accumulation unless the gradients are in one, and adds
  // parameters that require a gradient by now. `expected`: number of tokens, see StepCounts; `step_tokens`: see
  // ExecuteOptions. Throws UsageError if another optimizer has removed gradients that were not applied, or if the calls
  // of a step differ in step_tokens.
  void take(double expected, std::int64_t step_tokens);
  // After it. `counted`: tokens of this rank's last stage; `has_graph`: a loss on this rank depends on parameters.
  void add(std::int64_t global_samples, std::int64_t counted, bool has_graph);

  // Sums the gradients; `counted`: tokens of all ranks; `any_unsent`: GradientBuffers::has_unsent() of any rank. Throws
  // InputError if no label of the first step is counted, and UsageError if another number of tokens was stated than
  // counted, or if no loss of the first step depends on parameters. Collective over the world.
  void finish(double counted, bool any_unsent);
  // Drops the gradients. If reductions are in flight on some ranks, all ranks complete them. Collective over
  // the world.
  void give_up();

  GradientBuffers& gradients() { return optimizer_->gradients(); }
  double seed() const { return loss_scale_ / expected_tokens_; }  // gradient of the loss's sum
  std::int64_t counted() const { return counted_; }               // on this rank, so far
  std::int64_t step() const { return step_; }                     // steps that the optimizer has counted
  std::int64_t samples_of_step() const { return samples_; }       // global samples seen since its last step

 private:
  void begin(double expected, std::int64_t step_tokens);
  void look_at_unused_gradients(bool removed);
  void require_graph();
  void look_at_first_step(double counted);

  std::shared_ptr<BoostedOptimizer> optimizer_;
  const StageModule& model_;
  const ProcessGroupMesh& mesh_;
  double expected_tokens_ = 1;
  std::int64_t stated_tokens_ = 0;  // passed by the calls of the step; 0: none was passed
  double loss_scale_ = 1;
  std::int64_t counted_ = 0, step_ = 0, samples_ = 0;
  bool has_graph_ = false;    // true if a loss of the step has a graph
  bool has_counted_ = false;  // true if an earlier step had labels that count
  bool said_unused_ = false;  // the warning about unused gradients was printed
};

}  // namespace gantry
