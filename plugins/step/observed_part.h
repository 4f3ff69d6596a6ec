// Reports the outputs of modules to an observer.
#pragma once

#include "gantry/nn/output_observer.h"
#include "gantry/plugins/step/step_part.h"

namespace gantry {

class ObservedPart final : public StepPart {
 public:
  ObservedPart(nn::OutputObserver& observer, const StepCore& core) : observer_(observer), core_(core) {}  // not owned

  StageOutput forward(ForwardCall& call, const NextForward& next) override {
    const Batch& batch = core_.microbatches[call.microbatch];
    const nn::ObservedForward observed(&observer_, batch.first_sample, batch.samples);
    call.scope.observer = &observer_;
    return next();
  }
  // Modules themselves report outputs that are sharded over tp.
  TensorDict model(ForwardCall& call, const NextTensors& next) override {
    TensorDict result = next();
    if (!call.is_last) return result;
    for (const auto& [name, tensor] : result)
      if (!core_.split.contains(name)) observer_.model_output(name, tensor);
    return result;
  }

 private:
  nn::OutputObserver& observer_;
  const StepCore& core_;
};

}  // namespace gantry
