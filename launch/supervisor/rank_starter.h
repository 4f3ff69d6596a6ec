// The process that starts the ranks of a job without MPI, in place of mpirun: the shims of this host as its
// children, the shims of other hosts by ssh.
#pragma once

#include <string>
#include <vector>

#include "gantry/launch/supervisor/launch_options.h"

namespace gantry::launcher {

// The hidden command that the launch runs in place of mpirun.
inline constexpr const char* kRankStarterCommand = "launch-ranks";

// `gantry`: path of this program. `exported`: variables that ranks on other hosts get.
std::vector<std::string> starter_command(const LaunchOptions& options, const std::string& gantry,
                                         const std::vector<std::string>& exported);

// Starts the shims and waits until all have ended. Returns the largest of their exit codes. `words`: the
// arguments of the command.
int run_rank_starter(const std::vector<std::string>& words);

// Environment variable of a starter that starts only some ranks again: their numbers, separated by commas.
inline constexpr const char* kOnlyRanksVariable = "GANTRY_ONLY_RANKS";

// Argument of a shim on another host: its variables arrive over stdin, where no other user of that host can
// see them.
inline constexpr const char* kVariablesFromStdin = "--variables-from-stdin";
void read_variables();

}  // namespace gantry::launcher
