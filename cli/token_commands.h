// `gantry data encode` and `gantry data decode`: text to token ids and back.
#pragma once

namespace CLI {
class App;
}

namespace gantry::cli {

// Adds the subcommands to `gantry data`. Their callbacks print to stdout and throw gantry::Error.
void add_token_commands(CLI::App& data);

}  // namespace gantry::cli
