// What a program does beside a run's steps.
#pragma once

#include <functional>
#include <string>

#include "gantry/trainer/metrics.h"

namespace gantry {

// How a run has ended, the same on all ranks.
struct RunEnd {
  enum class How {
    kDone,     // all of train.steps
    kEnded,    // earlier, by Trainer::end
    kStopped,  // by a signal; a later run goes on from the checkpoint
  };
  How how = How::kDone;
  std::int64_t last_step = 0;  // that was done
  std::string checkpoint;      // the folder of the last one; empty without
};

// Each is called on every rank with the same values, where it is set. Add them on all ranks alike. They may use
// collectives over the world, and call Trainer::end. What one throws ends the run.
struct TrainerCallbacks {
  std::function<void(const StepMetrics& step)> on_step = {};                    // a step is done and written
  std::function<void(const EvaluationMetrics& evaluation)> on_evaluation = {};  // likewise
  // A checkpoint of this step was handed to the writer, which may not have written it yet (checkpoint.async).
  std::function<void(std::int64_t step)> on_save = {};
  std::function<void(const RunEnd& end)> on_end = {};  // the last one; not after an error
};

}  // namespace gantry
