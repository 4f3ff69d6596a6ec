// `gantry launch`: runs a program as the ranks of one job, and supervises it to its end.
#pragma once

#include <CLI/CLI.hpp>

namespace gantry::cli {

// The command sets `exit_code` to the exit code of the job if that is 0 or 75. It throws other exit codes as Error.
void add_launch_command(CLI::App& app, int& exit_code);

}  // namespace gantry::cli
