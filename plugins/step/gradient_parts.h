// The reduction of gradients over replicas (GradientBuffers), during the backward.
#pragma once

#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/plugins/step/step_part.h"

namespace gantry {

// Waits for the values of other replicas before a forward, and reduces the gradients of a stage after its backward.
class ReducedGradients final : public StepPart {
 public:
  struct When {
    bool at_last_backward = false;     // the step ends with this call: no more gradients are added
    bool after_each_backward = false;  // ZeRO 2
  };
  ReducedGradients(GradientBuffers& buffers, const When& when) : buffers_(buffers), when_(when) {}  // not owned

  StageOutput forward(ForwardCall& call, const NextForward& next) override {
    buffers_.wait_values(call.stage);
    return next();
  }
  void pass(PassCall& /*call*/, const Next& next) override {
    buffers_.wait_values(0);  // every stage has rows of the embedding and the head
    next();
  }
  TensorDict backward(BackwardCall& call, const NextTensors& next) override {
    TensorDict made = next();
    if (call.is_split) return made;
    end_stage(call);
    if (when_.after_each_backward) buffers_.scatter_stage(call.stage);
    return made;
  }
  void weights(WeightsCall& call, const Next& next) override {
    if (when_.after_each_backward) call.added = [this, stage = call.stage] { buffers_.scatter_added(stage); };
    next();
    if (when_.after_each_backward) buffers_.scatter_stage(call.stage);
    end_stage(call);
  }
  // Every replica launches the reductions of the last backward. Reductions within a step are skipped, because
  // all replicas then abort together.
  void skip(schedule::ActionKind /*kind*/, const StageCall& call) override { end_stage(call); }

 private:
  void end_stage(const StageCall& call) {
    if (call.completes && when_.at_last_backward) buffers_.stage_ready(call.stage);
  }

  GradientBuffers& buffers_;
  When when_;
};

// In the last backward of a stage, parameters report one by one that their gradients are ready. With recomputation a
// layer may use a parameter twice, so the stage reports for all.
class ReadyGradients final : public StepPart {
 public:
  ReadyGradients(GradientBuffers& buffers, bool one_by_one) : buffers_(buffers), one_by_one_(one_by_one) {}

  TensorDict backward(BackwardCall& call, const NextTensors& next) override {
    if (call.is_split || !call.completes) return next();
    buffers_.watch(one_by_one_);
    TensorDict made = next();
    buffers_.watch(false);
    return made;
  }

 private:
  GradientBuffers& buffers_;
  bool one_by_one_;
};

}  // namespace gantry
