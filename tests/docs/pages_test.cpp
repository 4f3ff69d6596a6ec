// Generated pages: the reference of the commands and the diagrams of schedules, from the program. Further, the cases of
// invalid configurations, and the quotes in troubleshooting.md. api_test.cpp generates the pages of the C++ API.
#include <algorithm>
#include <fmt/format.h>
#include <regex>

#include "documents.h"
#include "made_page.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

// --- invalid configurations

struct InvalidCase {
  std::string rule, wrong, says, right;  // `says`: a part of the error line
};

std::vector<InvalidCase> invalid_cases() {
  std::vector<InvalidCase> cases;
  std::istringstream lines(read_file((kRoot / "tests/docs/invalid_configurations.txt").string()));
  std::string* block = nullptr;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("rule: ")) cases.push_back({line.substr(6), "", "", ""});
    if (cases.empty()) continue;
    if (line.starts_with("says: ")) cases.back().says = line.substr(6);
    if (line == "wrong:") block = &cases.back().wrong;
    if (line == "right:") block = &cases.back().right;
    if (line.starts_with("  ") && block) *block += line.substr(2) + "\n";
  }
  return cases;
}

Outcome show(const std::string& yaml) {
  const ScratchFolder scratch;
  scratch.write("c.yaml", yaml);
  return run_program(fmt::format("cd {} && {} config c.yaml", scratch.path(), gantry_program()));
}

TEST(InvalidConfigurations, AreRefusedByTheirRuleAndTheCorrectedOnesLoad) {
  const auto cases = invalid_cases();
  for (const auto& each : cases) {
    const Outcome wrong = show(each.wrong), right = show(each.right);
    EXPECT_EQ(wrong.exit_code, 3) << each.rule;
    EXPECT_NE(wrong.err.find(each.says), std::string::npos) << each.rule << "\n" << wrong.err;
    EXPECT_EQ(wrong.out, "") << each.rule;
    EXPECT_EQ(right.exit_code, 0) << each.rule << "\n" << right.err;
  }
  EXPECT_GT(cases.size(), 30u);
}

// --- the command line

std::string help_of(const std::string& path) {
  const Outcome help = run_program(fmt::format("{} help{}", gantry_program(), path));
  EXPECT_EQ(help.exit_code, 0) << path << help.err;
  return help.out;
}

// In the order of the help.
std::vector<std::string> subcommands_in(const std::string& help) {
  static const std::regex command("^  ([a-z][a-z-]*)( .*)?");
  std::vector<std::string> names;
  bool is_listed = false;
  for (const auto& line : lines_of(help)) {
    if (line.empty()) is_listed = false;
    if (std::smatch match; is_listed && std::regex_match(line, match, command)) names.push_back(match[1]);
    if (line.starts_with("Subcommands:")) is_listed = true;
  }
  return names;
}

void add_command(std::string& page, const std::string& path, int& commands) {
  const std::string help = help_of(path);
  if (!path.empty()) {
    page += fmt::format("\n## gantry{}\n\n```text\n{}\n```\n", path, help.substr(0, help.find_last_not_of('\n') + 1));
    ++commands;
  }
  for (const auto& name : subcommands_in(help)) add_command(page, path + " " + name, commands);
}

TEST(CommandReference, IsTheProgramsHelp) {
  std::string page = R"(# Command line

The help of every command, as `gantry COMMAND --help` prints it. `gantry manual` prints the same as a manual page.
`gantry completion bash` (or `zsh`, `fish`) prints a script that completes commands and flags in the shell.

`--set KEY=VALUE` overrides a key of the [configuration](configuration.md). [Troubleshooting](troubleshooting.md)
lists the exit codes. `./dev pages` generates this page from the program.
)";
  int commands = 0;
  add_command(page, "", commands);
  EXPECT_GT(commands, 20);
  expect_page("commands.md", page);
}

// --- diagrams of schedules.md

TEST(Pictures, AreWhatTheProgramDraws) {
  // The page shows each diagram and the command that draws it.
  const std::pair<const char*, const char*> pictures[] = {
      {"gpipe", "gpipe -p 4 -m 8"}, {"1f1b", "1f1b -p 4 -m 8"}, {"interleaved_1f1b", "interleaved_1f1b -p 4 -m 8 -v 2"},
      {"zb_h1", "zb_h1 -p 4 -m 8"}, {"zb_v", "zb_v -p 4 -m 8"}, {"dualpipe_v", "dualpipe_v -p 4 -m 8"}};
  const std::string page = read_file((kRoot / "docs/schedules.md").string());
  for (const auto& [name, arguments] : pictures) {
    const Outcome drawn = run_program(fmt::format("{} schedule draw {} --format svg", gantry_program(), arguments));
    ASSERT_EQ(drawn.exit_code, 0) << drawn.err;
    expect_page(fmt::format("pictures/{}.svg", name), drawn.out);
    EXPECT_NE(page.find(fmt::format("pictures/{}.svg)", name)), std::string::npos) << name;
    EXPECT_NE(page.find(fmt::format("gantry schedule draw {} --format svg", arguments)), std::string::npos) << name;
  }
}

// --- troubleshooting.md

TEST(Troubleshooting, QuotesMessagesOfTheSources) {
  std::string sources;
  const auto read = [&](const fs::path& path) {
    if (path.extension() == ".cpp" || path.extension() == ".h") sources += read_file(path.string());
  };
  for (const char* folder : {"include",    "core",    "tensors",    "comm",     "diagnosis", "profiling",  "launch",
                             "schedule",   "nn",      "models",     "policies", "pipeline",  "checkpoint", "data",
                             "optimizers", "plugins", "generation", "booster",  "trainer",   "cli"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) read(entry.path());
  const Document page = read_document(kRoot / "docs/troubleshooting.md");
  const std::regex quoted("`([^`]+)`");
  int messages = 0;
  for (std::size_t i = 0; i < page.prose.size(); ++i) {
    const std::string& line = page.prose[i];
    if (!line.starts_with("| `")) continue;
    const std::string cell = line.substr(0, line.find(" |", 2));  // the first column quotes messages
    if (cell.find("`mpirun`") != std::string::npos) continue;
    for (std::sregex_iterator match(cell.begin(), cell.end(), quoted), end; match != end; ++match) {
      ++messages;
      EXPECT_NE(sources.find((*match)[1]), std::string::npos) << place(page, i + 1) << ": " << (*match)[1];
    }
  }
  EXPECT_GT(messages, 40);
}

TEST(Troubleshooting, HasEveryExitCode) {
  const Document page = read_document(kRoot / "docs/troubleshooting.md");
  const std::string tree = read_file((kRoot / "include/gantry/core/error.h").string());
  const std::regex code("detail::ErrorOf<([0-9]+)>");
  int codes = 0;
  for (std::sregex_iterator match(tree.begin(), tree.end(), code), end; match != end; ++match, ++codes) {
    const std::regex heading("## (Exit code )?" + (*match)[1].str() + ": .*");
    EXPECT_TRUE(std::any_of(page.prose.begin(), page.prose.end(),
                            [&](const auto& line) { return std::regex_match(line, heading); }))
        << "no section for exit code " << (*match)[1];
  }
  EXPECT_GE(codes, 9);
}

}  // namespace
}  // namespace gantry::testing
