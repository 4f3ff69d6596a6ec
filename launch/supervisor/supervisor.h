// One start of a job: mpirun, the shims of its ranks, and their end, which always comes.
#pragma once

#include "gantry/launch/supervisor/descriptor.h"
#include "gantry/launch/supervisor/job_output.h"
#include "gantry/launch/supervisor/launch_options.h"
#include "gantry/launch/supervisor/rank_end.h"

namespace gantry::launcher {

// The signals that ask a launch to stop (SIGINT, SIGTERM, SIGHUP, SIGUSR1), and SIGUSR2 for its ranks: caught from its
// making on, for as long as the process lives.
class LaunchSignals {
 public:
  LaunchSignals();
  int descriptor() const { return descriptor_.get(); }  // to be polled
  int take();                                           // the next one's number; 0: none
  // Waits so many seconds; a stop signal's number if one comes, else 0.
  int wait(double seconds);

 private:
  Descriptor descriptor_;
};

// Starts the job and stays until nothing of it is left: no rank, no mpirun. The first stop signal asks the ranks to
// stop (SIGUSR1), the second ends them at once. After the first failure the others get a few seconds.
// `start` counts from 0 and is the ranks' GANTRY_RESTART.
JobEnd run_job(const LaunchOptions& options, int start, LaunchSignals& signals, JobOutput& output);

}  // namespace gantry::launcher
