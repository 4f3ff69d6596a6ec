// The commands and flags as plain values, taken from CLI11's definitions: completions and the manual are made of them,
// so that they can't say anything else than the program does.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace gantry::cli {

struct FlagEntry {
  std::vector<std::string> names;  // with their dashes, the long one last; a positional's name alone
  std::string value;               // what stands for its value, "FILE"; empty: it takes none
  std::string description;
  std::vector<std::string> choices;  // all of its values; empty: any
  bool is_required = false;
  bool is_repeated = false;
};

struct CommandEntry {
  std::string path;  // "gantry checkpoint export"
  std::string description;
  std::vector<FlagEntry> flags;
  std::vector<FlagEntry> positionals;  // in their order
  std::vector<std::string> commands;   // the words that may follow; empty: none

  std::string name() const { return path.substr(path.rfind(' ') + 1); }
};

// The program first, then every command before the commands below it.
std::vector<CommandEntry> command_tree(const CLI::App& app);

}  // namespace gantry::cli
