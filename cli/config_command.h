// `gantry config CONFIG`: prints the resolved configuration and the values derived from it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "gantry/cli/plan_command.h"

namespace gantry::cli {

void add_config_command(CLI::App& app, const Prepare& prepare);

// Prints to stdout. `cluster`: a name or a file; keys with the value auto are chosen for it, as in `gantry train`;
// empty: none. Throws ConfigError if the configuration is wrong or does not fit its own mesh, and UsageError if a key
// has the value auto and no cluster is given.
void show_config(const std::string& path, const std::vector<std::string>& sets, const std::string& cluster, bool json);

}  // namespace gantry::cli
