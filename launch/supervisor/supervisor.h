// One start of a job: mpirun, the shims of its ranks, and their guaranteed end.
#pragma once

#include "gantry/launch/supervisor/job_output.h"
#include "gantry/launch/supervisor/launch_options.h"
#include "gantry/launch/supervisor/launch_signals.h"
#include "gantry/launch/supervisor/rank_end.h"

namespace gantry::launcher {

// Starts the job and waits until none of its processes is left, neither a rank nor mpirun. The first stop
// signal asks the ranks to stop (SIGUSR1), the second one ends them at once. After the first failure the
// other ranks get a few seconds. `start` counts from 0 and is the ranks' GANTRY_RESTART.
JobEnd run_job(const LaunchOptions& options, int start, LaunchSignals& signals, JobOutput& output);

}  // namespace gantry::launcher
