// Completions and the manual say what the program's own help says, for every command.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <sstream>

#include "program.h"

namespace gantry::testing {
namespace {

std::string help_of(const std::string& path) { return run_program(gantry_program() + " help " + path).out; }

// Every command as "checkpoint export", by following the help.
std::vector<std::string> all_commands(const std::string& path = "") {
  std::vector<std::string> all;
  std::istringstream lines(help_of(path));
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("Subcommands:")) inside = true;
    std::smatch match;
    if (!inside || !std::regex_search(line, match, std::regex("^  ([a-z]+) "))) continue;
    const std::string command = path.empty() ? match[1].str() : path + " " + match[1].str();
    all.push_back(command);
    for (auto& inner : all_commands(command)) all.push_back(std::move(inner));
  }
  return all;
}

std::set<std::string> flags_of(const std::string& command) {
  std::set<std::string> flags;
  const std::string help = help_of(command);
  const std::regex flag("--[a-z][a-z-]*");
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    const std::string head =
        line.substr(0, line.find_first_not_of("-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ, ="));
    if (!line.starts_with("  -")) continue;
    for (std::sregex_iterator match(head.begin(), head.end(), flag), end; match != end; ++match) {
      flags.insert(match->str());
      break;
    }
  }
  return flags;
}

// Returns the completions of bash for the last word of a line.
std::set<std::string> offered(const std::string& line) {
  const ScratchFolder scratch;
  const std::string script = scratch.write(
      "ask", fmt::format("source <({} completion bash)\nCOMP_LINE='{}'\nread -ra COMP_WORDS <<<\"$COMP_LINE\"\n"
                         "[[ $COMP_LINE == *' ' ]] && COMP_WORDS+=('')\nCOMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n"
                         "_gantry\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
                         gantry_program(), line));
  scratch.write("corpus.yaml", "");
  const Outcome run = run_program(fmt::format("cd {} && bash {}", scratch.path(), script));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  std::istringstream lines(run.out);
  std::set<std::string> words;
  for (std::string word; std::getline(lines, word);)
    if (!word.empty()) words.insert(word);
  return words;
}

using Words = std::set<std::string>;

TEST(Completion, BashOffersCommandsFlagsValuesAndFiles) {
  EXPECT_TRUE(offered("gantry ").contains("train"));
  EXPECT_EQ(offered("gantry tr"), Words{"train"});
  EXPECT_EQ(offered("gantry checkpoint ex"), Words{"export"});
  EXPECT_EQ(offered("gantry train --sam"), Words{"--sample"});
  EXPECT_EQ(offered("gantry train corpus.yaml --se"), Words{"--set"});
  EXPECT_EQ(offered("gantry checkpoint export --dtype float"), (Words{"float16", "float32", "float64"}));
  EXPECT_EQ(offered("gantry completion "), (Words{"bash", "fish", "zsh"}));
  EXPECT_EQ(offered("gantry train corp"), Words{"corpus.yaml"});
  EXPECT_EQ(offered("gantry trian "), offered("gantry "));
}

TEST(Completion, EveryCommandAndFlagIsThereInEveryShell) {
  const auto commands = all_commands();
  EXPECT_GT(commands.size(), 15u);
  const std::string bash = run_program(gantry_program() + " completion bash").out;
  const std::string zsh = run_program(gantry_program() + " completion zsh").out;
  const std::string fish = run_program(gantry_program() + " completion fish").out;
  for (const auto& command : commands) {
    const auto flags = flags_of(command);
    EXPECT_TRUE(flags.contains("--help")) << command;
    const auto known = offered("gantry " + command + " -");
    for (const auto& flag : flags) {
      EXPECT_TRUE(known.contains(flag)) << command << " " << flag;
      EXPECT_NE(zsh.find("'" + flag + ":"), std::string::npos) << flag;
      EXPECT_NE(fish.find(fmt::format("\"gantry {}\"'", command)), std::string::npos) << command;
      EXPECT_NE(fish.find(" -l " + flag.substr(2) + " "), std::string::npos) << flag;
    }
    EXPECT_NE(zsh.find("'gantry " + command + "')"), std::string::npos) << command;
  }
}

// Shells that this machine has read theirs without a complaint.
TEST(Completion, ShellsReadTheirs) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const Outcome run =
        run_program(fmt::format("command -v {0} >/dev/null || exit 0; {1} completion {0} > s && {0} -n s; "
                                "code=$?; rm -f s; exit $code",
                                shell, gantry_program()));
    EXPECT_EQ(run.exit_code, 0) << shell << run.err;
    EXPECT_EQ(run.err, "") << shell;
  }
  EXPECT_EQ(run_program(gantry_program() + " completion csh").exit_code, 2);
}

TEST(Manual, HasEveryCommandAndFlag) {
  const std::string page = run_program(gantry_program() + " manual").out;
  for (const auto& command : all_commands()) {
    const auto at = page.find("\n.SS \\fBgantry " + command + "\\fR");
    ASSERT_NE(at, std::string::npos) << command;
    const std::string section = page.substr(at, page.find("\n.S", at + 1) - at);
    for (const auto& flag : flags_of(command)) {
      std::string escaped;
      for (const char c : flag) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
      EXPECT_NE(section.find("\\fB" + escaped + "\\fR"), std::string::npos) << command << " " << flag;
    }
  }
}

TEST(Manual, IsFormattedWithoutWarnings) {
  const Outcome run = run_program(
      fmt::format("command -v groff >/dev/null || exit 0; {} manual | groff -man -ww -z", gantry_program()));
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err, "");
}

}  // namespace
}  // namespace gantry::testing
