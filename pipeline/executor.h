// Runs a proved schedule on one pipeline rank. Knows nothing of models: it moves activations between the StageRuntime
// that computes and the StageLink that communicates, as the list of actions says.
#pragma once

#include <functional>
#include <map>

#include "gantry/core/error.h"
#include "gantry/pipeline/action_times.h"
#include "gantry/pipeline/stage_link.h"
#include "gantry/pipeline/stage_runtime.h"
#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

class Executor {
 public:
  // Asked before each action that computes. True: the step is given up. Ranks that compute a stage together must get
  // the same answer to the same question; those of other stages need not.
  using Stops = std::function<bool()>;

  // `lowered` is valid and has sends and receives; `rank` is this rank's place along pp. The link is not owned.
  Executor(Schedule lowered, int rank, StageLink& link);

  // One step. Collective over pp: each rank runs its own row. On return nothing of the step is held. False where this
  // rank has given the step up: from then on it computes nothing, and its messages are empty, which tells the later
  // stages. Every message still has its receiver, so the link is as good as after a whole step. `times` notes each
  // action that is run, if it is not null.
  bool run(StageRuntime& runtime, ActionTimes* times = nullptr, const Stops& stops = {});

  const Schedule& schedule() const { return schedule_; }

 private:
  // All that a (stage, microbatch) holds, from its forward to its backward. The only owner of these tensors.
  struct Activation {
    TensorDict input;
    StageOutput output;
    TensorDict output_gradients;  // received, or handed over by the next stage when this rank holds it
    TensorDict input_gradients;   // made by the backward, until they are sent
  };

  void execute(const Action& action, StageRuntime& runtime);
  void skip(const Action& action, StageRuntime& runtime);
  void offer(const Action& backward, StageRuntime& runtime);
  void forward(const Action& action, StageRuntime& runtime);
  void backward(const Action& action, StageRuntime& runtime);
  void send_forward(const Action& action, const StageRuntime& runtime);
  void send_backward(const Action& action, const StageRuntime& runtime);
  void post_receives(std::size_t position, const StageRuntime& runtime);
  Activation& activation(int stage, int microbatch) { return activations_[{stage, microbatch}]; }
  bool holds(int stage) const { return schedule_.rank_of(stage) == rank_; }

  Schedule schedule_;
  int rank_;
  StageLink& link_;
  std::map<std::pair<int, int>, Activation> activations_;
  bool is_aborted_ = false;  // the step under way
};

}  // namespace gantry::schedule
