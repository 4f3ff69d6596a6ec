// Callbacks of a program during a training run.
#pragma once

#include <functional>
#include <string>

#include "gantry/optimizers/optimizer_tensors.h"
#include "gantry/tensors/batch.h"
#include "gantry/trainer/metrics.h"

namespace gantry {

// How a run has ended; the same on all ranks.
struct RunEnd {
  enum class How {
    kDone,     // all of train.steps
    kEnded,    // earlier, by Trainer::end(), train.patience or train.max_minutes, or at the end of the streams
    kStopped,  // by a signal; a later run can resume from the checkpoint, if there is one
  };
  How how = How::kDone;
  std::int64_t last_step = 0;  // the last completed step
  std::string checkpoint;      // directory of the last checkpoint; empty: none
};

// One backward pass: a microbatch on a stage.
struct MicrobatchBackward {
  std::int64_t step = 0;  // counted from 1
  int stage = 0;
  int microbatch = 0;  // counted from 0 in each replica
};

// The reduced gradients of a step on this rank.
struct StepGradients {
  std::int64_t step = 0;
  double norm = 0;  // global 2-norm before clipping; the same on all ranks
  // The gradients that this rank steps, by the name of their parameter; tied parameters occur once. A gradient has the
  // shape of this rank's shard of the parameter, and with parallel.zero it is this rank's part of the flattened shard,
  // [elements], which can be empty. It does not include the loss scale of float16. Ranks of other stages, and with tp
  // or ZeRO other ranks, have the other elements.
  NamedTensors gradients;
};

// Functions that the Trainer calls. Each one runs on every rank, so add the same ones on all ranks; for work of one
// rank, test trainer.world().is_main() in it. The arguments are the same on all ranks unless stated otherwise. All
// functions except before_backward may use collectives over the world; all may call Trainer::end().
//
// An exception in one of them, on any rank, ends all ranks with an error that names the function: UserError, or the
// exception itself if it is a gantry::Error. A step that a signal interrupts is repeated by the run that resumes, so
// on_batch and before_backward can be called again for the same step.
struct TrainerCallbacks {
  // Once, before the first step of this run, with the number of completed steps: the model has its weights, the loader
  // is at its first sample, and the output directory is open.
  std::function<void(std::int64_t done)> on_start = {};
  // Before each step, with the batch of this rank's replica. Ranks whose stages do not read the data have tensors
  // without meaningful values.
  std::function<void(std::int64_t step, const Batch& batch)> on_batch = {};
  // Before each backward pass on the ranks that run it: once per microbatch and stage. The argument differs by rank.
  std::function<void(const MicrobatchBackward& backward)> before_backward = {};
  // Once per step, after the gradients were reduced over the ranks. Gradients may be changed in place; every element
  // must be changed by the same rule on all ranks that have it. The norm for clipping and for the metrics is computed
  // again.
  std::function<void(const StepGradients& gradients)> after_backward = {};
  // Before the optimizer updates the parameters. Loss and gradient norm are finite, or the optimizer skips the step.
  std::function<void(std::int64_t step)> before_step = {};
  // After a step, when its metrics are written.
  std::function<void(const StepMetrics& step)> on_step = {};
  // After an evaluation, when its metrics are written.
  std::function<void(const EvaluationMetrics& evaluation)> on_evaluation = {};
  // After a checkpoint of this step was passed to the writer. With checkpoint.async it may not be written yet.
  std::function<void(std::int64_t step)> on_save = {};
  // At the end of the run; not after an error.
  std::function<void(const RunEnd& end)> on_end = {};
};

}  // namespace gantry
