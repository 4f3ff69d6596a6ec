// Callbacks of a program during a training run.
#pragma once

#include <functional>
#include <string>

#include "gantry/trainer/metrics.h"

namespace gantry {

// How a run has ended; the same on all ranks.
struct RunEnd {
  enum class How {
    kDone,     // all of train.steps
    kEnded,    // earlier, by Trainer::end()
    kStopped,  // by a signal; a later run can resume from the checkpoint
  };
  How how = How::kDone;
  std::int64_t last_step = 0;  // the last completed step
  std::string checkpoint;      // directory of the last checkpoint; empty: none
};

// Each function that is set is called on every rank with the same values, so add the same ones on all ranks. They may
// use collectives over the world, and call Trainer::end(). An exception that one throws ends the run.
struct TrainerCallbacks {
  std::function<void(const StepMetrics& step)> on_step = {};  // after a step, when its metrics are written
  // After an evaluation, when its metrics are written.
  std::function<void(const EvaluationMetrics& evaluation)> on_evaluation = {};
  // After a checkpoint of this step was passed to the writer. With checkpoint.async it may not be written yet.
  std::function<void(std::int64_t step)> on_save = {};
  std::function<void(const RunEnd& end)> on_end = {};  // at the end of the run; not after an error
};

}  // namespace gantry
