#include "gantry/cli/completion_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>

#include "gantry/cli/manual.h"
#include "gantry/core/io/output.h"

namespace gantry::cli {
namespace {

std::vector<std::string> flags_of(const CommandEntry& command) {
  std::vector<std::string> names;
  for (const auto& flag : command.flags) names.insert(names.end(), flag.names.begin(), flag.names.end());
  return names;
}

// Returns 'text' in quotes that all three shells understand.
std::string in_quotes(const std::string& text, const std::string& quote_inside = "'\\''") {
  std::string all = "'";
  for (const char c : text) c == '\'' ? all += quote_inside : all += c;
  return all + "'";
}

std::string command_patterns(const std::vector<CommandEntry>& commands) {
  std::vector<std::string> patterns;
  for (const auto& command : commands)
    if (command.path.find(' ') != std::string::npos) patterns.push_back(in_quotes(command.path));
  return fmt::format("{}", fmt::join(patterns, " | "));
}

// Returns shell cases for flags with choices. `take` is the shell command that completes from a list of values.
std::string value_cases(const std::vector<CommandEntry>& commands, const std::string& take) {
  std::string cases;
  for (const auto& command : commands)
    for (const auto& flag : command.flags) {
      if (flag.choices.empty()) continue;
      std::vector<std::string> patterns;
      for (const auto& name : flag.names) patterns.push_back(in_quotes(command.path + " " + name));
      cases += fmt::format("    {}) {} ;;\n", fmt::join(patterns, " | "),
                           fmt::format(fmt::runtime(take), fmt::join(flag.choices, " ")));
    }
  return cases;
}

// Returns the subcommands, or the choices of the first positional argument, such as SHELL of `gantry completion`.
std::vector<std::string> words_of(const CommandEntry& command) {
  if (!command.commands.empty()) return command.commands;
  return command.positionals.empty() ? std::vector<std::string>{} : command.positionals.front().choices;
}

// zsh splits name and description at the first colon that is not escaped.
std::string described(const std::string& name, const std::string& description) {
  std::string text = name + ":";
  for (const char c : description) {
    if (c == ':') text += '\\';
    text += c;
  }
  return in_quotes(text);
}

std::string zsh_case(const CommandEntry& command, const std::vector<CommandEntry>& all) {
  std::vector<std::string> words, flags;
  for (const auto& word : words_of(command)) {
    std::string description;
    for (const auto& inner : all)
      if (inner.path == command.path + " " + word) description = inner.description;
    words.push_back(described(word, description));
  }
  for (const auto& flag : command.flags)
    for (const auto& name : flag.names) flags.push_back(described(name, flag.description));
  return fmt::format("    {})\n      choices=({})\n      flags=({})\n      ;;\n", in_quotes(command.path),
                     fmt::join(words, " "), fmt::join(flags, " "));
}

std::string fish_lines(const CommandEntry& command, const std::vector<CommandEntry>& all) {
  constexpr const char* kQuote = "\\'";
  const std::string head = fmt::format("complete -c gantry -n 'test (__gantry_command) = \"{}\"'", command.path);
  std::string lines;
  for (const auto& word : words_of(command)) {
    std::string description;
    for (const auto& inner : all)
      if (inner.path == command.path + " " + word) description = inner.description;
    lines += fmt::format("{} -f -a {} -d {}\n", head, word, in_quotes(description, kQuote));
  }
  for (const auto& flag : command.flags) {
    lines += head;
    for (const auto& name : flag.names)
      lines += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    if (!flag.choices.empty())
      lines += fmt::format(" -x -a '{}'", fmt::join(flag.choices, " "));
    else if (!flag.value.empty())
      lines += " -r";
    lines += fmt::format(" -d {}\n", in_quotes(flag.description, kQuote));
  }
  return lines;
}

}  // namespace

std::string bash_completion(const std::vector<CommandEntry>& commands) {
  std::string text =
      "# Completes gantry in bash; made by `gantry completion bash`.\n"
      "_gantry() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=gantry choices flags i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case \"$command ${COMP_WORDS[i]}\" in\n";
  text += fmt::format("      {}) command=\"$command ${{COMP_WORDS[i]}}\" ;;\n", command_patterns(commands));
  text += "    esac\n  done\n  case \"$command $before\" in\n";
  text += value_cases(commands, "COMPREPLY=($(compgen -W '{}' -- \"$word\")); return");
  text += "  esac\n  case \"$command\" in\n";
  for (const auto& command : commands)
    text += fmt::format("    {}) choices='{}' flags='{}' ;;\n", in_quotes(command.path),
                        fmt::join(words_of(command), " "), fmt::join(flags_of(command), " "));
  text +=
      "  esac\n"
      "  if [[ $word == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"))\n"
      "  elif [[ -n $choices ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$choices\" -- \"$word\"))\n"
      "  else\n"
      "    compopt -o filenames 2>/dev/null\n"
      "    mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
      "  fi\n"
      "}\n"
      "complete -F _gantry gantry\n";
  return text;
}

std::string zsh_completion(const std::vector<CommandEntry>& commands) {
  std::string text =
      "#compdef gantry\n"
      "# Completes gantry in zsh; made by `gantry completion zsh`.\n"
      "_gantry() {\n"
      "  local command=gantry i\n"
      "  local -a choices flags\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    case \"$command $words[i]\" in\n";
  text += fmt::format("      {}) command=\"$command $words[i]\" ;;\n", command_patterns(commands));
  text += "    esac\n  done\n  case \"$command $words[CURRENT-1]\" in\n";
  text += value_cases(commands, "compadd -- {}; return");
  text += "  esac\n  case \"$command\" in\n";
  for (const auto& command : commands) text += zsh_case(command, commands);
  text +=
      "  esac\n"
      "  if [[ $words[CURRENT] == -* ]]; then\n"
      "    _describe -o flag flags\n"
      "  elif (( $#choices )); then\n"
      "    _describe command choices\n"
      "  else\n"
      "    _files\n"
      "  fi\n"
      "}\n"
      "# Loaded by zsh itself, the file is the function's first call; sourced, it registers the function.\n"
      "if [[ $funcstack[1] == _gantry ]]; then _gantry \"$@\"; else compdef _gantry gantry; fi\n";
  return text;
}

std::string fish_completion(const std::vector<CommandEntry>& commands) {
  std::vector<std::string> patterns;
  for (const auto& command : commands)
    if (command.path.find(' ') != std::string::npos) patterns.push_back(in_quotes(command.path));
  std::string text =
      "# Completes gantry in fish; made by `gantry completion fish`.\n"
      "function __gantry_command\n"
      "  set -l command gantry\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    switch \"$command $word\"\n";
  text += fmt::format("      case {}\n        set command \"$command $word\"\n", fmt::join(patterns, " "));
  text += "    end\n  end\n  echo $command\nend\n";
  for (const auto& command : commands) text += fish_lines(command, commands);
  return text;
}

void add_completion_command(CLI::App& app) {
  auto* completion =
      app.add_subcommand("completion", "Print a script that completes commands and flags of gantry in a shell");
  const auto shell = std::make_shared<std::string>();
  completion->add_option("shell", *shell, "The shell")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([shell, &app] {
    const auto commands = command_tree(app);
    print_output(*shell == "bash"  ? bash_completion(commands)
                 : *shell == "zsh" ? zsh_completion(commands)
                                   : fish_completion(commands));
  });
  app.add_subcommand("manual", "Print the manual page gantry(1): gantry manual | man -l -")->callback([&app] {
    print_output(manual_page(command_tree(app)));
  });
}

}  // namespace gantry::cli
