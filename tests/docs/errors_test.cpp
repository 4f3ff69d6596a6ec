// docs/errors.md is made of the errors that the sources throw, and troubleshooting.md explains what a line leaves open.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <regex>
#include <set>

#include "documents.h"
#include "error_lines.h"
#include "made_page.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kThrowingFolders[] = {"include", "trainer",    "booster",   "generation", "plugins", "optimizers",
                                            "data",    "checkpoint", "pipeline",  "policies",   "models",  "nn",
                                            "launch",  "profiling",  "diagnosis", "comm",       "tensors", "schedule",
                                            "core",    "cli",        "planner"};

// By exit code, then by file.
std::map<int, std::vector<ErrorLine>> all_errors() {
  std::vector<fs::path> paths;
  for (const char* folder : kThrowingFolders)
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
      if (entry.path().extension() == ".cpp" || entry.path().extension() == ".h") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::map<int, std::vector<ErrorLine>> errors;
  for (const auto& path : paths)
    for (const auto& line : error_lines(fs::relative(path, kRoot).string(), read_file(path.string())))
      errors[line.exit_code].push_back(line);
  return errors;
}

bool has_words(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
}

// What passes on a line that is made elsewhere.
bool is_passed_on(const ErrorLine& line) { return !has_words(line.what + line.expected + line.remedy); }

// As code in a table's cell.
std::string cell(const std::string& text) {
  if (text.empty()) return "";
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? "\\|" : std::string(1, c);
  return text.find('`') == std::string::npos ? "`" + escaped + "`" : "`` " + escaped + " ``";
}

std::map<int, std::string> headings() {
  std::map<int, std::string> found;
  const std::regex heading("^## ([0-9]+): .*");
  for (const auto& line : read_document(kRoot / "docs/troubleshooting.md").prose)
    if (std::smatch match; std::regex_match(line, match, heading)) found[std::stoi(match[1])] = line;
  return found;
}

TEST(Errors, ThePageHasEveryOneOfTheSources) {
  std::string page =
      "# Every error\n\nAn error is one line, `error: where: what; expected; remedy`, and its exit code says of which "
      "kind it is. Here is what each of them\nsays, expects and advises, by exit code and source; `...` is a value of "
      "the run, or what the system or a library said, and ` / ` stands\nbetween two forms. An error that passes on "
      "another's line is not listed twice. [Troubleshooting](troubleshooting.md) has causes and remedies\nof "
      "those that users meet, what ranks say of each other (7), and every error that states neither. This page is made "
      "of the sources by\n`./dev pages`.\n";
  const auto titles = headings();
  std::size_t count = 0;
  for (const auto& [code, lines] : all_errors()) {
    page += "\n" + titles.at(code) + "\n\n| says | expects | advises | source |\n|---|---|---|---|\n";
    std::set<std::string> seen;
    for (const auto& line : lines) {
      const std::string row =
          fmt::format("| {} | {} | {} | [{}](../{}) |\n", has_words(line.what) ? cell(line.what) : "a value or reason",
                      cell(line.expected), cell(line.remedy), line.file, line.file);
      if (is_passed_on(line) || !seen.insert(row).second) continue;
      page += row;
      ++count;
    }
  }
  EXPECT_GT(count, 400u);
  expect_page("errors.md", page);
}

// The messages of troubleshooting.md's first columns, by exit code.
std::map<int, std::vector<std::string>> explained() {
  std::map<int, std::vector<std::string>> messages;
  const std::regex heading("^## ([0-9]+): .*"), quoted("`([^`]+)`");
  int code = 0;
  for (const auto& line : read_document(kRoot / "docs/troubleshooting.md").prose) {
    std::smatch match;
    if (std::regex_match(line, match, heading)) code = std::stoi(match[1]);
    if (!line.starts_with("| ")) continue;
    const std::string first = line.substr(0, line.find(" |", 2));
    for (std::sregex_iterator each(first.begin(), first.end(), quoted), end; each != end; ++each)
      messages[code].push_back((*each)[1]);
  }
  return messages;
}

TEST(Errors, WhatStatesNeitherWhatWasExpectedNorARemedyIsExplained) {
  const auto messages = explained();
  for (const auto& [code, lines] : all_errors()) {
    if (code == 1) continue;  // a fault of Gantry's: one row for all of them
    for (const auto& line : lines) {
      if (is_passed_on(line) || !line.expected.empty() || !line.remedy.empty()) continue;
      const auto& known = messages.at(code);
      EXPECT_TRUE(std::any_of(known.begin(), known.end(),
                              [&](const std::string& message) { return line.what.find(message) != std::string::npos; }))
          << line.file << ":" << line.line << ": '" << line.what << "' is not in troubleshooting.md, section " << code;
    }
  }
}

TEST(ErrorLines, OfAThrow) {
  const auto lines = error_lines("a.cpp", R"code(
    throw InputError({path, fmt::format("has {} of {{all}}", n), "most " + std::to_string(k), full ? "more" : ""});
  )code");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].exit_code, 4);
  EXPECT_EQ(lines[0].line, 2);
  EXPECT_EQ(lines[0].what, "has ... of {all}");
  EXPECT_EQ(lines[0].expected, "most ...");
  EXPECT_EQ(lines[0].remedy, "more");
}

TEST(ErrorLines, OfAFunctionThatThrowsItsParameters) {
  const auto lines = error_lines("a.cpp", R"code(
    constexpr const char* kAgain = "fetch it again";
    [[noreturn]] void refuse(const std::string& what, const std::string& remedy = "") {  // "a comment's text"
      throw InputError({path_, "its head " + what, "", remedy});
    }
    void read() {
      if (a) refuse("is cut", kAgain);
      if (b) refuse(fmt::format("has '{}'", c));
    }
  )code");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].what, "its head is cut");
  EXPECT_EQ(lines[0].remedy, "fetch it again");
  EXPECT_EQ(lines[1].what, "its head has '...'");
  EXPECT_EQ(lines[1].remedy, "");
}

TEST(ErrorLines, OfAConfigurationsKey) {
  const auto lines = error_lines("a.cpp",
                                 "section.fault(\"chunks\", \"is \" + n, \"one\");\n"
                                 "faults.add(path, node.Mark(), \"is no key\", \"a key\", \"see\");\n");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].exit_code, 3);
  EXPECT_EQ(lines[0].what, "is ...");
  EXPECT_EQ(lines[1].what, "is no key");
  EXPECT_EQ(lines[1].remedy, "see");
}

}  // namespace
}  // namespace gantry::testing
