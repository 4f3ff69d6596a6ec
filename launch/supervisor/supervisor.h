// One start of a job: mpirun, the shims of its ranks, and their end, which always comes.
#pragma once

#include "gantry/launch/supervisor/job_output.h"
#include "gantry/launch/supervisor/launch_options.h"
#include "gantry/launch/supervisor/launch_signals.h"
#include "gantry/launch/supervisor/rank_end.h"

namespace gantry::launcher {

// Starts the job and stays until nothing of it is left: no rank, no mpirun. The first stop signal asks the ranks to
// stop (SIGUSR1), the second ends them at once. After the first failure the others get a few seconds.
// `start` counts from 0 and is the ranks' GANTRY_RESTART.
JobEnd run_job(const LaunchOptions& options, int start, LaunchSignals& signals, JobOutput& output);

}  // namespace gantry::launcher
