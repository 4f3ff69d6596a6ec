#include "gantry/cli/usage.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "gantry/core/error.h"

namespace gantry::cli {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Flags of other programs, and the flags with this meaning here.
constexpr std::pair<const char*, const char*> kOtherFlags[] = {{"--stages", "--ranks"},
                                                               {"--nproc", "--ranks"},
                                                               {"--num-stages", "--ranks"},
                                                               {"--num-microbatches", "--microbatches"}};

std::string see_help(const std::string& command) { return fmt::format("see {} --help", command); }

std::string suggestion(const std::string& word, const std::vector<std::string>& known, const std::string& command) {
  const std::string near = nearest_name(word, known);
  return near.empty() ? see_help(command) : fmt::format("did you mean '{}'?", near);
}

ErrorText unknown_command(const CLI::App& app, const std::string& path, const std::string& word) {
  std::vector<std::string> names;
  for (const auto* command : commands_of(app)) names.push_back(command->get_name());
  return {path, fmt::format("'{}' is not a command", word), fmt::format("one of {}", fmt::join(names, ", ")),
          suggestion(word, names, path)};
}

ErrorText unknown_flag(const CLI::App& app, const std::string& path, const std::string& word) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options())
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  const std::string flag = word.substr(0, word.find('='));
  for (const auto& [other, own] : kOtherFlags)
    if (flag == other && std::ranges::count(names, own) > 0)
      return {path, fmt::format("'{}' is not a flag", flag), "", fmt::format("did you mean '{}'?", own)};
  return {path, fmt::format("'{}' is not a flag", flag), "", suggestion(flag, names, path)};
}

// Returns the commands that were parsed, each with its path, innermost last.
std::vector<std::pair<const CLI::App*, std::string>> reached_commands(const CLI::App& app) {
  std::vector<std::pair<const CLI::App*, std::string>> reached{{&app, app.get_name()}};
  while (!reached.back().first->get_subcommands().empty()) {
    const CLI::App* inner = reached.back().first->get_subcommands().front();
    reached.emplace_back(inner, reached.back().second + " " + inner->get_name());
  }
  return reached;
}

}  // namespace

std::optional<ErrorText> unknown_word(const CLI::App& app) {
  const auto reached = reached_commands(app);
  for (auto at = reached.rbegin(); at != reached.rend(); ++at) {
    const auto& [command, path] = *at;
    std::vector<std::string> unknown = command->remaining();
    std::erase(unknown, "--");
    if (unknown.empty()) continue;
    const std::string& word = unknown.front();
    if (word.size() > 1 && word[0] == '-') return unknown_flag(*command, path, word);
    if (!commands_of(*command).empty()) return unknown_command(*command, path, word);
    return ErrorText{path, fmt::format("'{}' is one argument too many", word), "", see_help(path)};
  }
  return std::nullopt;
}

std::string usage_line(const CLI::App& app, const CLI::ParseError& error) {
  // Report an unknown word first, because it is often the cause of a missing one.
  if (const auto unknown = unknown_word(app)) return format_error(*unknown);
  const std::string path = reached_commands(app).back().second;
  return format_error({path, error.what(), "", see_help(path)});
}

std::string help_of(const CLI::App& app, const std::vector<std::string>& path) {
  const CLI::App* command = &app;
  std::string above = app.get_name();
  for (const auto& word : path) {
    const auto commands = commands_of(*command);
    const auto found = std::find_if(commands.begin(), commands.end(),
                                    [&](const CLI::App* known) { return known->get_name() == word; });
    if (found == commands.end() && !commands.empty()) throw UsageError(unknown_command(*command, above, word));
    if (found == commands.end())
      throw UsageError({above, fmt::format("'{}' is not a command", word), "", see_help(above)});
    command = *found;
    above += " " + word;
  }
  return command == &app ? app.help() : command->help(above.substr(0, above.rfind(' ')));
}

}  // namespace gantry::cli
