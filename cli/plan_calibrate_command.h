// `gantry plan calibrate`: a cluster's file by what runs have measured, without LibTorch.
#pragma once

#include <CLI/CLI.hpp>

namespace gantry::cli {

// Below `plan`.
void add_calibrate_command(CLI::App& plan);

}  // namespace gantry::cli
