// The process that `gantry launch` starts between mpirun and each rank's program. It sends the program's
// output and exit status to the launch, forwards signals, and kills all remaining processes of the program at
// the end.
#pragma once

namespace gantry::launcher {

// The hidden command that mpirun runs; it gets its arguments over the connection to the launch.
inline constexpr const char* kRankShimCommand = "launch-rank";

// Runs the program and returns the exit code for mpirun: the program's own, 0 for 75 (a job that stopped on
// request did not fail), 7 for a signal.
int run_rank_shim();

}  // namespace gantry::launcher
