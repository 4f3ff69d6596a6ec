// `gantry data`: tokenizes text into token files for training, converts between text and tokens, and shows samples.
#pragma once

#include <functional>

#include "gantry/cli/commands.h"

namespace gantry::cli {

// Adds the subcommand; `run_show` runs `gantry data show`. The other callbacks print to stdout and throw gantry::Error.
void add_data_command(CLI::App& app, DataShowArguments& show, const std::function<void()>& run_show);

}  // namespace gantry::cli
