// Parameters that are sharded over replicas (gathered_stages.h): gathered around each computation of a stage.
#pragma once

#include <memory>

#include "gantry/plugins/gathered_stages.h"
#include "gantry/plugins/step/step_part.h"

namespace gantry {

class GatheredPart final : public StepPart {
 public:
  GatheredPart(std::shared_ptr<GatheredStages> gathered, const GatheredStages::Step& step)
      : gathered_(std::move(gathered)) {
    gathered_->begin(step);
  }

  StageOutput forward(ForwardCall& call, const NextForward& next) override {
    call.scope.watch = gathered_;
    gathered_->begin(call.stage, GatheredStages::Kind::kForward, /*is_last=*/false);
    StageOutput made = next();
    gathered_->end();
    return made;
  }
  TensorDict backward(BackwardCall& call, const NextTensors& next) override {
    gathered_->begin(call.stage, GatheredStages::Kind::kBackward, call.completes);
    TensorDict made = next();
    gathered_->end();
    return made;
  }
  void weights(WeightsCall& call, const Next& next) override {
    gathered_->begin(call.stage, GatheredStages::Kind::kWeights, /*is_last=*/false);
    next();
    gathered_->end();
  }
  bool run(const schedule::Action& action) override {
    using enum schedule::ActionKind;
    if (action.kind != kUnshard && action.kind != kReshard && action.kind != kReduceGradient) return false;
    gathered_->run(action);
    return true;
  }

 private:
  std::shared_ptr<GatheredStages> gathered_;
};

}  // namespace gantry
