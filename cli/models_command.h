// `gantry models`: the families, and the parts of a model's directory that Gantry reads.
#pragma once

#include <CLI/CLI.hpp>

namespace gantry::cli {

// Sets `exit_code` to 3 if a part of the directory is refused.
void add_models_command(CLI::App& app, int& exit_code);

}  // namespace gantry::cli
