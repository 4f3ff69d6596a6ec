// Every C++ block of the documents is text of a file that is compiled and run: an example, the template of `gantry
// init`, tests/booster/snippets_test.cpp or tests/plugins/layer_lists_test.cpp. The output of schedules and
// configurations in console blocks is compared with the program.
#include <algorithm>
#include <fmt/format.h>

#include "documents.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

// Texts are compared without blanks, because the formatter may change them.
std::string without_blanks(const std::string& text) {
  std::string dense;
  std::copy_if(text.begin(), text.end(), std::back_inserter(dense),
               [](unsigned char c) { return std::isspace(c) == 0; });
  return dense;
}

struct Source {
  std::string path, dense;
};

std::vector<Source> compiled_sources() {
  std::vector<Source> sources;
  const fs::path root(GANTRY_SOURCE_DIR);
  const auto add = [&](const fs::path& path) {
    if (path.extension() == ".cpp" || path.extension() == ".h")
      sources.push_back({fs::relative(path, root).string(), without_blanks(read_file(path.string()))});
  };
  for (const char* folder : {"examples", "cli/init/template"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) add(entry.path());
  add(root / "tests/booster/snippets_test.cpp");
  add(root / "tests/plugins/layer_lists_test.cpp");
  return sources;
}

// A line "// ..." stands for lines that are left out.
std::vector<std::string> dense_parts(const std::string& block) {
  std::vector<std::string> parts(1);
  std::istringstream lines(block);
  for (std::string line; std::getline(lines, line);)
    if (without_blanks(line) == "//...")
      parts.emplace_back();
    else
      parts.back() += without_blanks(line);
  std::erase(parts, "");
  return parts;
}

bool has_in_order(const std::string& text, const std::vector<std::string>& parts) {
  std::size_t at = 0;
  for (const auto& part : parts) {
    at = text.find(part, at);
    if (at == std::string::npos) return false;
    at += part.size();
  }
  return true;
}

TEST(Snippets, EveryCppBlockIsTextOfACompiledFile) {
  const auto sources = compiled_sources();
  int blocks = 0;
  for (const auto& document : documents())
    for (const auto& block : document.blocks) {
      if (block.language != "cpp") continue;
      ++blocks;
      const auto parts = dense_parts(block.text);
      EXPECT_TRUE(std::any_of(sources.begin(), sources.end(),
                              [&](const Source& source) { return has_in_order(source.dense, parts); }))
          << place(document, block.line) << " is text of no example, nor of tests/booster/snippets_test.cpp:\n"
          << block.text;
    }
  EXPECT_GT(blocks, 5);
}

TEST(Snippets, ElisionsKeepTheOrder) {
  EXPECT_TRUE(has_in_order(without_blanks("int a; int b; int c;"), dense_parts("int a;\n// ...\nint c;\n")));
  EXPECT_FALSE(has_in_order(without_blanks("int a; int b;"), dense_parts("int b;\n  // ...\nint a;\n")));
  EXPECT_FALSE(has_in_order("inta;", {"intb;"}));
}

// "$ gantry ..." and the lines after it, up to the next "$" or the end. A line "..." matches any lines.
struct Session {
  std::string command;
  std::vector<std::string> printed;
};

std::vector<Session> sessions_of(const Block& block) {
  std::vector<Session> sessions;
  std::istringstream lines(block.text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("$ "))
      sessions.push_back({line.substr(2), {}});
    else if (!sessions.empty())
      sessions.back().printed.push_back(line);
  return sessions;
}

bool is_printed(const std::vector<std::string>& printed, const std::vector<std::string>& expected) {
  std::size_t at = 0;
  bool any = false;
  for (const auto& line : expected) {
    if (line == "...") {
      any = true;
      continue;
    }
    const auto from = printed.begin() + static_cast<std::ptrdiff_t>(at);
    const auto found = any ? std::find(from, printed.end(), line) : from;
    if (found == printed.end() || *found != line) return false;
    at = static_cast<std::size_t>(found - printed.begin()) + 1;
    any = false;
  }
  return any || at == printed.size();
}

TEST(Snippets, WhatConsoleBlocksShowIsPrinted) {
  const fs::path bin = fs::path(gantry_program()).parent_path();
  int sessions = 0;
  for (const auto& document : documents())
    for (const auto& block : document.blocks) {
      if (block.language != "console") continue;
      for (const auto& [command, expected] : sessions_of(block)) {
        // The output of other commands depends on a run.
        const bool is_repeatable = command.starts_with("gantry schedule ") || command.starts_with("gantry config ");
        if (!is_repeatable || expected.empty()) continue;
        ++sessions;
        const Outcome run =
            run_program(fmt::format("cd {} && PATH={}:$PATH && {} 2>&1", GANTRY_SOURCE_DIR, bin.string(), command));
        EXPECT_TRUE(is_printed(lines_of(run.out), expected))
            << place(document, block.line) << ": " << command << "\nprints\n"
            << run.out;
      }
    }
  EXPECT_GT(sessions, 3);
}

TEST(Snippets, ADifferenceInPrintedLinesIsFound) {
  EXPECT_TRUE(is_printed({"a", "b", "c"}, {"a", "...", "c"}));
  EXPECT_TRUE(is_printed({"a", "b", "c"}, {"a", "..."}));
  EXPECT_FALSE(is_printed({"a", "b", "c"}, {"a", "b"}));
  EXPECT_FALSE(is_printed({"a", "b"}, {"a", "c"}));
  EXPECT_FALSE(is_printed({"a"}, {"a", "b"}));
  EXPECT_FALSE(is_printed({"a", "b"}, {"...", "a"}));
}

}  // namespace
}  // namespace gantry::testing
