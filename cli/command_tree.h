// The commands and flags as plain values, extracted from CLI11's definitions. Completions and the manual page are
// generated from them, so that they always agree with the program.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace gantry::cli {

struct FlagEntry {
  std::vector<std::string> names;  // with dashes, long names last; a positional has its name only
  std::string value;               // placeholder of the value, such as "FILE"; empty: the flag takes no value
  std::string description;
  std::vector<std::string> choices;  // the allowed values; empty: any value
  bool is_required = false;
  bool is_repeated = false;
};

struct CommandEntry {
  std::string path;  // "gantry checkpoint export"
  std::string description;
  std::vector<FlagEntry> flags;
  std::vector<FlagEntry> positionals;  // in order
  std::vector<std::string> commands;   // names of the subcommands

  std::string name() const { return path.substr(path.rfind(' ') + 1); }
};

// Returns the program first, and every command before its subcommands.
std::vector<CommandEntry> command_tree(const CLI::App& app);

}  // namespace gantry::cli
