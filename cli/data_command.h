// `gantry data build`: tokenizes text into token files for training.
#pragma once

namespace CLI {
class App;
}

namespace gantry::cli {

// Adds the subcommand. Its callback prints to stdout and throws gantry::Error.
void add_data_command(CLI::App& app);

}  // namespace gantry::cli
