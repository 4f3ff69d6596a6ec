// Runs a validated schedule on one pipeline rank. It does not depend on the model: it follows the list of
// actions, and moves activations between the StageRuntime, which computes, and the StageLink, which
// communicates.
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
  // Called before each action that computes; true aborts the step. Ranks that compute a stage together must
  // get the same answer from the same call. Ranks of different stages need not.
  using Stops = std::function<bool()>;

  // `lowered` is valid and contains sends and receives. `rank` is this rank's index along pp. The link is not
  // owned.
  Executor(Schedule lowered, int rank, StageLink& link);

  // Runs one step, and keeps none of its tensors. Collective over pp: each rank runs its own row. Returns
  // false if this rank has aborted the step. It then computes nothing more, and its messages are empty, which
  // notifies the later stages. Every message still has its receiver, so the link stays usable. `times`
  // records each action that is run, if it is not null.
  bool run(StageRuntime& runtime, ActionTimes* times = nullptr, const Stops& stops = {});

  const Schedule& schedule() const { return schedule_; }

 private:
  // All tensors of a (stage, microbatch), from its forward to its backward. Their only owner.
  struct Activation {
    TensorDict input;
    StageOutput output;
    TensorDict output_gradients;  // received, or set by the next stage if this rank holds it
    TensorDict input_gradients;   // computed by the backward; kept until they are sent
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
  bool is_aborted_ = false;  // the current step
};

}  // namespace gantry::schedule
