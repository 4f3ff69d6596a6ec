#include "gantry/cli/command_tree.h"

#include <sstream>

namespace gantry::cli {
namespace {

// Returns the choices in a type such as "TEXT:{a,b,c}", the form that CLI::IsMember writes.
std::vector<std::string> choices_in(const std::string& type) {
  std::vector<std::string> choices;
  const auto begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return choices;
  std::istringstream words(type.substr(begin + 1, end - begin - 1));
  for (std::string word; std::getline(words, word, ',');) choices.push_back(word);
  return choices;
}

FlagEntry entry_of(const CLI::Option& option) {
  FlagEntry entry;
  for (const auto& name : option.get_snames()) entry.names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) entry.names.push_back("--" + name);
  if (entry.names.empty()) entry.names.push_back(option.get_name());
  const std::string type = option.get_type_name();
  if (option.get_items_expected_max() > 0) {
    entry.choices = choices_in(type);
    entry.value = entry.choices.empty() ? type.substr(0, type.find(':')) : "NAME";
    if (entry.value.empty()) entry.value = "VALUE";
  }
  entry.description = option.get_description();
  entry.is_required = option.get_required();
  entry.is_repeated = option.get_items_expected_max() > 1 || option.get_expected_max() > 1;
  return entry;
}

void add_commands(const CLI::App& app, const std::string& path, std::vector<CommandEntry>& all) {
  CommandEntry command{
      .path = path, .description = app.get_description(), .flags = {}, .positionals = {}, .commands = {}};
  for (const auto* option : app.get_options())
    (option->get_positional() ? command.positionals : command.flags).push_back(entry_of(*option));
  const auto below = app.get_subcommands([](const CLI::App*) { return true; });
  for (const auto* inner : below) command.commands.push_back(inner->get_name());
  all.push_back(std::move(command));
  for (const auto* inner : below) add_commands(*inner, path + " " + inner->get_name(), all);
}

}  // namespace

std::vector<CommandEntry> command_tree(const CLI::App& app) {
  std::vector<CommandEntry> all;
  add_commands(app, app.get_name(), all);
  return all;
}

}  // namespace gantry::cli
