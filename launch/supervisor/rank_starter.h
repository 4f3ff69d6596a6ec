// The process that starts the ranks of a job without MPI, in mpirun's place: the shims of this host's as its children,
// those of other hosts by ssh.
#pragma once

#include <string>
#include <vector>

#include "gantry/launch/supervisor/launch_options.h"

namespace gantry::launcher {

// The hidden command that the launch runs in mpirun's place.
inline constexpr const char* kRankStarterCommand = "launch-ranks";

// `gantry` is this program; `exported` are the variables that ranks on other hosts get.
std::vector<std::string> starter_command(const LaunchOptions& options, const std::string& gantry,
                                         const std::vector<std::string>& exported);

// Starts them and stays until all have ended; the largest of their exit codes. `words`: the arguments of the command.
int run_rank_starter(const std::vector<std::string>& words);

// In the environment of a starter that starts only some ranks again: their numbers, with commas.
inline constexpr const char* kOnlyRanksVariable = "GANTRY_ONLY_RANKS";

// An argument of the shim's on another host: its variables come over stdin, where no other user of that host sees them.
inline constexpr const char* kVariablesFromStdin = "--variables-from-stdin";
void read_variables();

}  // namespace gantry::launcher
