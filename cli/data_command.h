// `gantry data`: tokenizes text into token files for training, and converts between text and tokens.
#pragma once

namespace CLI {
class App;
}

namespace gantry::cli {

// Adds the subcommand. Its callback prints to stdout and throws gantry::Error.
void add_data_command(CLI::App& app);

}  // namespace gantry::cli
