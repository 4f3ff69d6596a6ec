// Runs a training job: its ranks, each with a Trainer, with stops and restarts.
#pragma once

#include <functional>

#include "gantry/trainer/trainer.h"

namespace gantry {

// Starts the ranks of the configuration (launch.h) and calls `body` on each, which must call Trainer::run(); otherwise
// the job fails with UsageError. If checkpoint.path or output is set, SIGTERM, SIGINT and SIGUSR1 stop the run within a
// microbatch, with a checkpoint and the report. A job that `gantry launch --restarts` has restarted resumes from its
// own checkpoints. If a run fails, its report is still written, with the error.
//
// Returns the exit code: 0, 75 if a signal stopped the run before its end, or the code of the first failure. Throws
// ConfigError, InputError or UsageError before the ranks start if the configuration cannot be trained.
int train(const Config& config, const std::function<void(Trainer&)>& body, const RunOptions& options = {});

// The same for a program without parts or callbacks of its own.
int train(const Config& config, const RunOptions& options = {});

// The same for a training loop of your own, without a Trainer: starts the ranks, handles stop signals, and sets
// checkpoint.resume after a restart. `loop` returns true if it ended early because of a signal (RunStops::
// asked_to_stop()), after it has saved; the return value is then 75. `config` is resolved (recipe.h). Throws
// ConfigError for a restart without checkpoint.path.
int train_by_loop(Config config, const std::function<bool(World&)>& loop);

}  // namespace gantry
