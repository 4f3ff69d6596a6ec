#include "gantry/cli/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/version.h"

namespace gantry::cli {
namespace {

// Escapes text for troff: dashes can be copied from the page, and no line is parsed as a request.
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
                                  {"1", "An internal error of Gantry."},
                                  {"2", "A wrong command line or call."},
                                  {"3", "A wrong configuration, mesh or shard plan."},
                                  {"4", "Wrong data, or a wrong model file."},
                                  {"5", "A checkpoint that is damaged, incomplete or does not match."},
                                  {"6", "Missing memory, disk space or software."},
                                  {"7", "A rank was lost, or a wait timed out."},
                                  {"8", "Non-finite numbers, or replicas that differ."},
                                  {"9", "An exception in your own code."},
                                  {"75", "Stopped on request, with a checkpoint if checkpoint.path is set."}};

constexpr Meaning kVariables[] = {
    {"GANTRY_TORCH", "Directory of LibTorch, with lib/libtorch.so in it, if gantry does not find LibTorch."},
    {"OMP_NUM_THREADS", "Number of threads of a rank; default: the cores of the host divided by its ranks."},
    {"NO_COLOR", "If set, gantry prints no colours."}};

template <std::size_t kCount>
std::string meanings(const Meaning (&all)[kCount]) {
  std::string text;
  for (const auto& [name, meaning] : all) text += fmt::format(".TP\n{}\n{}\n", bold(name), escaped(meaning));
  return text;
}

}  // namespace

std::string manual_page(const std::vector<CommandEntry>& commands) {
  std::string text = fmt::format(".TH GANTRY 1 \"\" \"gantry {}\" \"User Commands\"\n", GANTRY_VERSION);
  text +=
      ".SH NAME\ngantry \\- trains transformer models over tensor, pipeline, context, data and expert parallel ranks\n";
  text +=
      ".SH SYNOPSIS\n\\fBgantry\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.br\n\\fBgantry help\\fR [\\fICOMMAND\\fR]\n";
  text += ".SH DESCRIPTION\n" + escaped(commands.front().description) + "\n.PP\n";
  text += "An error is one line with the place, the problem, the expected value and the remedy.\n.SH OPTIONS\n";
  for (const auto& flag : commands.front().flags) text += flag_entry(flag);
  text += ".SH COMMANDS\n";
  for (std::size_t i = 1; i < commands.size(); ++i) text += command_section(commands[i]);
  text += ".SH \"EXIT STATUS\"\n" + meanings(kExitCodes) + ".SH ENVIRONMENT\n" + meanings(kVariables);
  return text + ".SH \"SEE ALSO\"\n.BR mpirun (1)\n";
}

}  // namespace gantry::cli
