// What the executor asks of one rank's model. Implemented by plugins, by tests and by benchmarks with empty stages.
#pragma once

#include <vector>

#include "gantry/schedule/action.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// What a forward of (stage, microbatch) made. `boundary` goes to the next stage; `root` is a scalar whose backward
// starts with a gradient of one (the seeded loss on the last stage, or a loss that a middle stage adds); it may be
// undefined.
struct StageOutput {
  TensorDict boundary;
  torch::Tensor root;
};

class StageRuntime {
 public:
  virtual ~StageRuntime() = default;

  // `input` is empty on stage 0, else what stage - 1 sent: leaves that require a gradient where the sender's did.
  virtual StageOutput forward(int stage, int microbatch, TensorDict input) = 0;

  // The full backward: accumulates the gradients of the stage's parameters, and returns those of `input` by the same
  // names (undefined ones are allowed). `gradients` are those of output.boundary; absent or undefined ones are zero.
  virtual TensorDict backward(int stage, int microbatch, const TensorDict& input, const StageOutput& output,
                              const TensorDict& gradients) = 0;

  // The first half of a split backward: returns the gradients of `input`; those of parameters may wait.
  virtual TensorDict backward_input(int stage, int microbatch, const TensorDict& input, const StageOutput& output,
                                    const TensorDict& gradients) = 0;
  // The second half: accumulates what backward_input left over.
  virtual void backward_weight(int stage, int microbatch) = 0;
  // A pass of embedding or head, on every rank, where these are computed outside of the stages.
  virtual void run_vocabulary(schedule::ActionKind /*pass*/, int /*microbatch*/) {}
  // Of an overlapped pair: the backward that follows the forward which comes now. It may run part by part, between the
  // parts of that forward; its own call does the rest.
  virtual void offer_backward(const schedule::Action& /*backward*/, const StageOutput& /*output*/,
                              const TensorDict& /*gradients*/) {}
  // In place of one of these, of a step that was given up. Replicas that were not given up may be waiting for what goes
  // with it.
  virtual void skip(schedule::ActionKind /*kind*/, int /*stage*/, int /*microbatch*/) {}

  // An extra action of the schedule, also of a step that was given up: other replicas may take part in it. Only
  // runtimes whose schedules have some are asked.
  virtual void extra(const schedule::Action& action);

  // What the microbatch shapes agree on: messages of microbatches with equal keys have equal shapes.
  virtual std::string shape_key(int microbatch) const = 0;

  // False for evaluation: forwards then run without a graph and keep nothing.
  virtual bool needs_gradients() const = 0;
};

// Runs autograd from an output to its input: what most runtimes' backward is.
TensorDict run_backward(const TensorDict& input, const StageOutput& output, const TensorDict& gradients);
// Its beginning, where autograd runs from, and its end.
struct BackwardRoots {
  std::vector<torch::Tensor> roots, seeds;
};
BackwardRoots backward_roots(const StageOutput& output, const TensorDict& gradients);
TensorDict gradients_of(const TensorDict& input);

}  // namespace gantry
