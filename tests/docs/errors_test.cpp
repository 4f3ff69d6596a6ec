// tests/docs/errors.txt lists the errors that the sources throw, so that a review shows changes of a text. Further,
// docs/troubleshooting.md explains the errors that state neither an expectation nor a remedy.
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

// Ordered by exit code, then by file.
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

// True if the text only passes on the line of another error.
bool is_passed_on(const ErrorLine& line) { return !has_words(line.what + line.expected + line.remedy); }

// The class of each exit code, from the tree of errors.
std::map<int, std::string> error_classes() {
  const std::string tree = read_file((kRoot / "include/gantry/core/error.h").string());
  const std::regex declared("struct ([A-Za-z]+) : detail::ErrorOf<([0-9]+)>");
  std::map<int, std::string> classes;
  for (std::sregex_iterator match(tree.begin(), tree.end(), declared), end; match != end; ++match)
    classes[std::stoi((*match)[2])] = (*match)[1];
  return classes;
}

// The text in the form in which a program prints it, with the source in place of the first part.
std::string listing_of(const ErrorLine& line) {
  std::string text = line.file + ": " + (has_words(line.what) ? line.what : "...");
  if (!line.expected.empty()) text += "; expected " + line.expected;
  if (!line.remedy.empty()) text += "; " + line.remedy;
  return text + "\n";
}

TEST(Errors, TheListHasEveryErrorOfTheSources) {
  std::string list =
      "# Every error text of the sources, by exit code and file, in the form \"FILE: what; expected; remedy\". \"...\" "
      "is "
      "a value, and \" / \" separates\n# alternatives. Texts that only pass on another error are not listed. "
      "tests/docs/errors_test.cpp compares this list with the sources, and\n# ./dev pages writes it.\n";
  const auto classes = error_classes();
  std::size_t count = 0;
  for (const auto& [code, lines] : all_errors()) {
    list += fmt::format("\n== exit code {}: {}\n", code, classes.at(code));
    std::set<std::string> seen;
    for (const auto& line : lines) {
      if (is_passed_on(line) || !seen.insert(listing_of(line)).second) continue;
      list += listing_of(line);
      ++count;
    }
  }
  EXPECT_GT(count, 400u);
  expect_file("tests/docs/errors.txt", list);
}

// The messages in the first columns of the tables of troubleshooting.md, by exit code.
std::map<int, std::vector<std::string>> explained() {
  std::map<int, std::vector<std::string>> messages;
  const std::regex heading("^## (?:Exit code )?([0-9]+): .*"), quoted("`([^`]+)`");
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

TEST(Errors, TroubleshootingExplainsThoseWithoutExpectationAndRemedy) {
  const auto messages = explained();
  for (const auto& [code, lines] : all_errors()) {
    if (code == 1) continue;  // bugs in Gantry share one row
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
