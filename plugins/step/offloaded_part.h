// Tensors that are on the host during a part of a step (step_offload.h).
#pragma once

#include "gantry/plugins/step/step_part.h"
#include "gantry/plugins/step_offload.h"
#include "gantry/schedule/offload_actions.h"

namespace gantry {

class OffloadedPart final : public StepPart {
 public:
  explicit OffloadedPart(StepOffload& offload) : offload_(offload) {}  // not owned

  StageOutput forward(ForwardCall& call, const NextForward& next) override {
    const SavedTensorsScope saved(offload_.begin_forward(call.stage, call.microbatch));
    return next();
  }
  TensorDict backward(BackwardCall& call, const NextTensors& next) override {
    offload_.wait(call.stage, call.microbatch);
    return next();
  }
  bool run(const schedule::Action& action) override {
    if (!schedule::is_offload_action(action.kind)) return false;
    offload_.run(action);
    return true;
  }
  void finish(bool /*done*/) override { offload_.finish(); }
  void give_up() noexcept override { offload_.give_up(); }

 private:
  StepOffload& offload_;
};

}  // namespace gantry
