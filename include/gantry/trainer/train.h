// Runs a training job: its ranks, each with a Trainer, with stops and restarts.
#pragma once

#include <functional>

#include "gantry/trainer/trainer.h"

namespace gantry {

// Starts the ranks of the configuration (launch.h) and calls `body` on each, which must call Trainer::run(). If
// checkpoint.path is set, SIGTERM, SIGINT and SIGUSR1 stop the run within a microbatch, with a checkpoint. A job that
// `gantry launch --restarts` has restarted resumes from its own checkpoints. If a run fails, its report is still
// written.
//
// Returns the exit code: 0, 75 if a signal stopped the run before its end, or the code of the first failure. Throws
// ConfigError, InputError or UsageError before the ranks start if the configuration cannot be trained.
int train(const Config& config, const std::function<void(Trainer&)>& body, const RunOptions& options = {});

// The same for a program without parts or callbacks of its own.
int train(const Config& config, const RunOptions& options = {});

}  // namespace gantry
