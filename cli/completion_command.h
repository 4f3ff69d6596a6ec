// `gantry completion SHELL`: prints the completion script of a shell for the commands, flags and their values.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "gantry/cli/command_tree.h"

namespace gantry::cli {

std::string bash_completion(const std::vector<CommandEntry>& commands);
std::string zsh_completion(const std::vector<CommandEntry>& commands);
std::string fish_completion(const std::vector<CommandEntry>& commands);

// Adds `gantry completion` and `gantry manual`, which describe all commands of `app`.
void add_completion_command(CLI::App& app);

}  // namespace gantry::cli
