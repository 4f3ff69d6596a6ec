// The links of the documents lead to existing pages and headings, their configurations load, and their command lines
// exist.
#include "documents.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <sstream>

#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

// The anchor that renderers generate: lower case, '-' for blanks, no punctuation.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const unsigned char c : heading)
    if (std::isalnum(c) || c == '-' || c == '_' || c >= 0x80)
      anchor += static_cast<char>(std::tolower(c));
    else if (c == ' ')
      anchor += '-';
  return anchor;
}

std::set<std::string> anchors_of(const fs::path& path) {
  std::set<std::string> anchors;
  for (const auto& line : read_document(path).prose)
    if (line.starts_with('#')) anchors.insert(anchor_of(line.substr(line.find_first_not_of("# "))));
  return anchors;
}

TEST(Documents, LinksLeadSomewhere) {
  const std::regex link("\\]\\(([^)\\s]+)\\)");
  int links = 0;
  for (const auto& document : documents())
    for (std::size_t i = 0; i < document.prose.size(); ++i)
      for (std::sregex_iterator match(document.prose[i].begin(), document.prose[i].end(), link), end; match != end;
           ++match) {
        const std::string target = (*match)[1];
        if (target.find("://") != std::string::npos || target.starts_with("mailto:")) continue;
        ++links;
        const std::string file = target.substr(0, target.find('#'));
        const fs::path path = file.empty() ? document.path : document.path.parent_path() / file;
        EXPECT_TRUE(fs::exists(path)) << place(document, i + 1) << ": " << target;
        if (target.find('#') == std::string::npos || !fs::exists(path)) continue;
        EXPECT_TRUE(anchors_of(path).contains(target.substr(target.find('#') + 1)))
            << place(document, i + 1) << ": " << target << " names no heading";
      }
  EXPECT_GT(links, 3);
}

TEST(Documents, ConfigurationsLoad) {
  int configurations = 0;
  for (const auto& document : documents())
    for (const auto& block : document.blocks) {
      if (block.language != "yaml") continue;
      ++configurations;
      // A part of a file is completed by a model.
      const bool full = block.text.starts_with("model:") || block.text.find("\nmodel:") != std::string::npos;
      const std::string text = (full ? "" : "model: {policy: gpt2}\n") + block.text;
      const ScratchFolder scratch;
      const Outcome run = run_program(gantry_program() + " config " + scratch.write("c.yaml", text));
      EXPECT_EQ(run.exit_code, 0) << place(document, block.line) << "\n" << run.err;
    }
  EXPECT_GT(configurations, 5);
}

// One page for each task of a reader: a new page replaces or extends another one. docs/api is not counted.
TEST(Documents, AreAtMostThirtyFivePages) {
  int pages = 0;
  for (const auto& document : documents()) {
    const std::string path = fs::relative(document.path, kRoot).string();
    pages += path.starts_with("docs/") && path != "docs/api.md" ? 1 : 0;
  }
  EXPECT_LE(pages, 35);
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line.substr(0, line.find(" #")));
  return {std::istream_iterator<std::string>(stream), {}};
}

bool is_name(const std::string& word) {
  return !word.empty() && std::islower(static_cast<unsigned char>(word[0])) &&
         word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") == std::string::npos;
}

// The words after `gantry`: nested commands, and flags that the help of the innermost command lists.
void expect_gantry_line(const std::vector<std::string>& words, const std::string& where) {
  std::string path;
  std::string help = run_program(gantry_program() + " --help").out;
  std::size_t next = 0;
  for (; next < words.size() && help.find("Subcommands:") != std::string::npos && is_name(words[next]); ++next) {
    const Outcome deeper = run_program(fmt::format("{} help {} {}", gantry_program(), path, words[next]));
    ASSERT_EQ(deeper.exit_code, 0) << where << "\n" << deeper.err;
    path += " " + words[next];
    help = deeper.out;
  }
  for (; next < words.size(); ++next) {
    if (words[next] == "--") {  // the command that a launcher runs
      if (next + 1 < words.size() && words[next + 1] == "gantry")
        expect_gantry_line({words.begin() + static_cast<std::ptrdiff_t>(next) + 2, words.end()}, where);
      return;
    }
    const std::string flag = words[next].substr(0, words[next].find('='));
    if (flag.size() < 2 || flag[0] != '-' || flag.find_first_not_of("-0123456789.") == std::string::npos) continue;
    EXPECT_TRUE(std::regex_search(help, std::regex("[ ,]" + flag + "\\b")))
        << where << ": " << flag << " is not a flag of gantry" << path;
  }
}

void expect_dev_line(const std::vector<std::string>& words, const std::string& where) {
  const std::string help = run_program("cd " GANTRY_SOURCE_DIR " && ./dev help").out;
  if (words.empty() || !is_name(words[0])) return;
  EXPECT_TRUE(std::regex_search(help, std::regex("\\b" + words[0] + "\\b")) || words[0] == "help")
      << where << ": " << words[0] << " is not a command of ./dev\n"
      << help;
}

// Checks a line that runs one of the project's programs, under a launcher or not; false for any other.
bool check_command(const std::string& line, const std::string& where) {
  std::vector<std::string> words = words_of(line);
  if (!words.empty() && words[0] == "$") words.erase(words.begin());
  const bool launched = !words.empty() && (words[0] == "mpirun" || words[0] == "srun");
  const auto program = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return word == "./dev" || word == "gantry" || word.ends_with("/bin/gantry");
  });
  if (program == words.end() || (program != words.begin() && !launched)) return false;
  const std::vector<std::string> rest(program + 1, words.end());
  *program == "./dev" ? expect_dev_line(rest, where) : expect_gantry_line(rest, where);
  return true;
}

TEST(Documents, CommandLinesExist) {
  int lines = 0;
  for (const auto& document : documents())
    for (const auto& block : document.blocks) {
      if (block.language != "sh" && block.language != "console" && block.language != "bash" && !block.language.empty())
        continue;
      std::istringstream text(block.text);
      for (std::string line; std::getline(text, line);)
        lines += check_command(line, place(document, block.line) + ": " + line) ? 1 : 0;
    }
  EXPECT_GT(lines, 3);
}

// Commands that the prose names: `gantry config CONFIG`, `./dev test`.
TEST(Documents, CommandsInProseExist) {
  const std::regex code("`((?:gantry|\\./dev)( [^`]*)?)`");
  int commands = 0;
  for (const auto& document : documents())
    for (std::size_t i = 0; i < document.prose.size(); ++i)
      for (std::sregex_iterator match(document.prose[i].begin(), document.prose[i].end(), code), end; match != end;
           ++match)
        commands += check_command((*match)[1], place(document, i + 1)) ? 1 : 0;
  EXPECT_GT(commands, 5);
}

}  // namespace
}  // namespace gantry::testing
