// The interface through which the executor runs one rank's model. Implemented by plugins, tests, and
// benchmarks with empty stages.
#pragma once

#include <vector>

#include "gantry/schedule/action.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// The result of the forward of (stage, microbatch). `boundary` goes to the next stage. `root` is a scalar
// whose backward starts with a gradient of one (the seeded loss on the last stage, or a loss that a middle
// stage adds); it may be undefined.
struct StageOutput {
  TensorDict boundary;
  torch::Tensor root;
};

class StageRuntime {
 public:
  virtual ~StageRuntime() = default;

  // `input` is empty on stage 0. Otherwise it is the output of stage - 1, as leaves that require a gradient
  // if the sender's tensors did.
  virtual StageOutput forward(int stage, int microbatch, TensorDict input) = 0;

  // The full backward: accumulates the gradients of the stage's parameters, and returns those of `input`
  // under the same names (undefined ones are allowed). `gradients` are those of output.boundary; absent or
  // undefined ones are zero.
  virtual TensorDict backward(int stage, int microbatch, const TensorDict& input, const StageOutput& output,
                              const TensorDict& gradients) = 0;

  // The first half of a split backward: returns the gradients of `input`. Those of parameters may be computed
  // later.
  virtual TensorDict backward_input(int stage, int microbatch, const TensorDict& input, const StageOutput& output,
                                    const TensorDict& gradients) = 0;
  // The second half: accumulates the gradients that backward_input() has not computed.
  virtual void backward_weight(int stage, int microbatch) = 0;
  // A pass of the embedding or the head on every rank, if these are computed outside of the stages.
  virtual void run_vocabulary(schedule::ActionKind /*pass*/, int /*microbatch*/) {}
  // For an overlapped pair: announces the backward that follows the next forward. Its parts may run between
  // the parts of that forward. The call of the backward itself runs the remaining parts.
  virtual void offer_backward(const schedule::Action& /*backward*/, const StageOutput& /*output*/,
                              const TensorDict& /*gradients*/) {}
  // Called instead of a compute action if the step was aborted. Replicas that did not abort may wait for this
  // rank's messages in the action.
  virtual void skip(schedule::ActionKind /*kind*/, int /*stage*/, int /*microbatch*/) {}

  // An extra action of the schedule. It runs in aborted steps too, because other replicas may take part in
  // it. Called only if the schedule has extra actions.
  virtual void extra(const schedule::Action& action);

  // A key for the shapes of a microbatch: messages of microbatches with equal keys have equal shapes.
  virtual std::string shape_key(int microbatch) const = 0;

  // False for evaluation: forwards then run without a graph and keep no activations.
  virtual bool needs_gradients() const = 0;
};

// Runs autograd from an output to its input. Most runtimes use it as their backward.
TensorDict run_backward(const TensorDict& input, const StageOutput& output, const TensorDict& gradients);
// The two halves of run_backward(): the roots from which autograd starts, and the gradients of the input at
// the end.
struct BackwardRoots {
  std::vector<torch::Tensor> roots, seeds;
};
BackwardRoots backward_roots(const StageOutput& output, const TensorDict& gradients);
TensorDict gradients_of(const TensorDict& input);

}  // namespace gantry
