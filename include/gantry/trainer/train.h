// A training job: its ranks, each with a Trainer, its stops and its restarts.
#pragma once

#include <functional>

#include "gantry/trainer/trainer.h"

namespace gantry {

// Starts the ranks that the configuration asks for (launch.h) and runs `body` on each, which calls Trainer::run. Where
// checkpoint.path is set, SIGTERM, SIGINT and SIGUSR1 stop the run within a microbatch, with a checkpoint. What `gantry
// launch --restarts` has started again goes on from what it has saved. Of a run that fails the report is still written.
//
// Returns the exit code: 0, 75 where the run was stopped by a signal before its end, or that of the first failure. A
// configuration that can't be trained on is thrown before ranks start: ConfigError, InputError, UsageError.
int train(const Config& config, const std::function<void(Trainer&)>& body, const RunOptions& options = {});

// With nothing of the program's own.
int train(const Config& config, const RunOptions& options = {});

}  // namespace gantry
