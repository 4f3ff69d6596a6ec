// The process that `gantry launch` puts between mpirun and each rank's program: it sends home what the program prints
// and how it ends, hands signals on, and lets nothing of it survive.
#pragma once

namespace gantry::launcher {

// The hidden command that mpirun runs; its arguments come over the connection.
inline constexpr const char* kRankShimCommand = "launch-rank";

// Runs the program and gives the exit code for mpirun: the program's own, 0 for 75 (a job that stopped on request did
// not fail), 7 for a signal.
int run_rank_shim();

}  // namespace gantry::launcher
