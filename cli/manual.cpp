#include "gantry/cli/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/version.h"

namespace gantry::cli {
namespace {

// As troff text: dashes that can be copied, and no line that is read as a request.
std::string escaped(const std::string& text) {
  std::string all;
  for (const char c : text) {
    if (c == '\\')
      all += "\\e";
    else if (c == '-')
      all += "\\-";
    else
      all += c;
  }
  return !all.empty() && (all[0] == '.' || all[0] == '\'') ? "\\&" + all : all;
}

std::string bold(const std::string& text) { return "\\fB" + escaped(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + escaped(text) + "\\fR"; }

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string flag_entry(const FlagEntry& flag) {
  std::vector<std::string> names;
  for (const auto& name : flag.names) names.push_back(bold(name));
  std::string text = fmt::format(".TP\n{}", fmt::join(names, ", "));
  if (!flag.value.empty()) text += " " + italic(flag.value);
  text += "\n" + escaped(flag.description);
  if (!flag.choices.empty()) text += fmt::format(" ({})", fmt::join(flag.choices, ", "));
  if (flag.is_required) text += " (required)";
  return text + "\n";
}

std::string command_section(const CommandEntry& command) {
  std::string line = bold(command.path);
  for (const auto& positional : command.positionals) {
    const std::string name = italic(upper(positional.names.front())) + (positional.is_repeated ? "..." : "");
    line += positional.is_required ? " " + name : " [" + name + "]";
  }
  if (!command.commands.empty()) line += " " + italic("COMMAND");
  std::string text = fmt::format(".SS {}\n{}.\n", line, escaped(command.description));
  for (const auto& positional : command.positionals) {
    FlagEntry entry = positional;
    entry.names = {upper(positional.names.front())};
    entry.value.clear();
    text += flag_entry(entry);
  }
  for (const auto& flag : command.flags) text += flag_entry(flag);
  return text;
}

struct Meaning {
  const char* name;
  const char* text;
};

constexpr Meaning kExitCodes[] = {{"0", "Done."},
                                  {"1", "An error within Gantry."},
                                  {"2", "A wrong command line or call."},
                                  {"3", "A wrong configuration, mesh or shard plan."},
                                  {"4", "Data or a model's file that can't be used."},
                                  {"5", "A checkpoint that is damaged, incomplete or does not fit."},
                                  {"6", "No memory, no space, or something that is not installed."},
                                  {"7", "A peer was lost, or a wait timed out."},
                                  {"8", "Numbers that are not finite, or replicas that differ."},
                                  {"75", "Stopped on request, with a checkpoint saved."}};

constexpr Meaning kVariables[] = {
    {"GANTRY_TORCH", "The folder of LibTorch, with lib/libtorch.so in it, where it is not found by itself."},
    {"OMP_NUM_THREADS", "Threads of a rank's computations; the cores of the host over its ranks where it is not set."},
    {"NO_COLOR", "No colours."}};

template <std::size_t kCount>
std::string meanings(const Meaning (&all)[kCount]) {
  std::string text;
  for (const auto& [name, meaning] : all) text += fmt::format(".TP\n{}\n{}\n", bold(name), escaped(meaning));
  return text;
}

}  // namespace

std::string manual_page(const std::vector<CommandEntry>& commands) {
  std::string text = fmt::format(
      ".TH GANTRY 1 \"\" \"gantry {}\" \"User Commands\"\n"
      ".SH NAME\ngantry \\- trains transformer models over tensor, pipeline and data parallel ranks\n"
      ".SH SYNOPSIS\n\\fBgantry\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.br\n\\fBgantry help\\fR [\\fICOMMAND\\fR]\n"
      ".SH DESCRIPTION\n{}\n.PP\nAn error is one line: error: where: what; expected; remedy.\n.SH OPTIONS\n",
      GANTRY_VERSION, escaped(commands.front().description));
  for (const auto& flag : commands.front().flags) text += flag_entry(flag);
  text += ".SH COMMANDS\n";
  for (std::size_t i = 1; i < commands.size(); ++i) text += command_section(commands[i]);
  text += ".SH \"EXIT STATUS\"\n" + meanings(kExitCodes) + ".SH ENVIRONMENT\n" + meanings(kVariables);
  return text + ".SH \"SEE ALSO\"\n.BR mpirun (1)\n";
}

}  // namespace gantry::cli
