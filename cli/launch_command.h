// `gantry launch`: runs a program as the ranks of one job over mpirun, and stays with it to its end.
#pragma once

#include <CLI/CLI.hpp>

namespace gantry::cli {

// `exit_code` gets the job's where that is no failure (0, 75); failures are thrown as Error with the job's code.
void add_launch_command(CLI::App& app, int& exit_code);

}  // namespace gantry::cli
