// `gantry plan calibrate`: adapts the rates of a cluster file to measured runs, without LibTorch.
#pragma once

#include <CLI/CLI.hpp>

namespace gantry::cli {

// Adds a subcommand of `plan`.
void add_calibrate_command(CLI::App& plan);

}  // namespace gantry::cli
