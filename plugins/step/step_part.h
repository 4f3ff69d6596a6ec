// A part of a pipeline step: one feature, such as gathering or offload, around the computations of the stages.
//
// The parts of a step form a chain in a fixed order (step_parts.h). Each function below is called for the first part.
// `next` calls the same function of the next part and, at the end of the chain, runs the computation. A part can do
// something before or after it, change what the call contains, or replace it by not calling `next`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gantry/nn/deferred_logits.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/weight_gradient.h"
#include "gantry/pipeline/stage_runtime.h"
#include "gantry/plugins/step/step_core.h"
#include "gantry/schedule/action.h"

namespace gantry {

// A computation of a stage on a microbatch.
struct StageCall {
  int stage = 0, microbatch = 0;
  bool is_first = false, is_last = false;  // the first or last stage of the model
  bool completes = false;                  // no further gradients of the stage's parameters follow in this step
};

struct ForwardCall : StageCall {
  TensorDict input;  // result of the previous stage; empty on the first one
  TensorDict given;  // the input of the model: the microbatch on the first stage, else `input`
  Forward scope = {};
  ForwardReport report = {};
  TensorDict added = {};           // losses that the stage added
  nn::DeferredLogits logits = {};  // the head, if the last stage defers its logits
  double other_seconds = 0;        // time that other computations took within this one
};

struct BackwardCall : StageCall {
  const TensorDict& input;
  const StageOutput& output;
  TensorDict gradients;            // gradients of output.boundary
  bool is_split = false;           // the gradients of parameters follow in weights()
  nn::WeightGradientStore* store;  // receives these gradients
};

struct WeightsCall : StageCall {
  std::function<void()> added = {};  // called after each gradient was added
};

// A pass of an embedding or a head that is computed outside of the stages.
struct PassCall : StageCall {
  schedule::ActionKind kind;
};

class StepPart {
 public:
  using Next = std::function<void()>;
  using NextForward = std::function<StageOutput()>;
  using NextTensors = std::function<TensorDict()>;

  StepPart() = default;
  virtual ~StepPart() = default;
  StepPart(const StepPart&) = delete;
  StepPart& operator=(const StepPart&) = delete;

  virtual StageOutput forward(ForwardCall& /*call*/, const NextForward& next) { return next(); }
  // The model's part of a forward, in the forward scope.
  virtual TensorDict model(ForwardCall& /*call*/, const NextTensors& next) { return next(); }
  virtual TensorDict backward(BackwardCall& /*call*/, const NextTensors& next) { return next(); }
  virtual void weights(WeightsCall& /*call*/, const Next& next) { next(); }
  virtual void pass(PassCall& /*call*/, const Next& next) { next(); }

  // The following functions have no `next`: they are called for each part.

  // Returns true if the part takes the outputs of the last stage in place of the criterion.
  virtual bool takes_outputs(const ForwardCall& /*call*/, TensorDict& /*outputs*/, StageOutput& /*made*/) {
    return false;
  }
  // Offers the backward that follows the next forward. Returns true if the part runs it piece by piece during that
  // forward.
  virtual bool offer(const BackwardCall& /*call*/) { return false; }
  // Called instead of a computation of an aborted step. Other replicas may wait for its messages.
  virtual void skip(schedule::ActionKind /*kind*/, const StageCall& /*call*/) {}
  // Runs an extra action of the schedule. Returns true if it belongs to this part.
  virtual bool run(const schedule::Action& /*action*/) { return false; }
  // Called after the last action. `done`: the step was not aborted.
  virtual void finish(bool /*done*/) {}
  // Called after an exception.
  virtual void give_up() noexcept {}
  // The outputs of the step, if this part computes them.
  virtual std::optional<TensorDict> outputs() { return std::nullopt; }
};

using StepParts = std::vector<std::unique_ptr<StepPart>>;

}  // namespace gantry
