// docs/api.md and docs/api/: the declarations of the public headers with their comments, generated from the headers.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <regex>
#include <set>

#include "documents.h"
#include "header_api.h"
#include "made_page.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

struct ApiFolder {
  const char* folder;
  const char* about;
};

constexpr ApiFolder kApiFolders[] = {
    {"trainer", "The training run"},
    {"booster", "Booster, recipes and layout comparison: the entry point of a training program"},
    {"generation", "Text generation"},
    {"plugins", "Parallelization of a model, and its training step"},
    {"optimizers", "Optimizers, gradient buckets, precision, learning rates"},
    {"policies", "Policies: how a model is sharded and partitioned into stages"},
    {"schedule", "Schedules, without LibTorch"},
    {"planner", "Estimates of the time and memory of a layout, without LibTorch"},
    {"checkpoint", "Checkpoints"},
    {"data", "Data sets, loaders and tokenizers"},
    {"models", "Models"},
    {"nn", "Layers that support sharding"},
    {"launch", "Starting the ranks of a job"},
    {"profiling", "Measurement of time and memory"},
    {"diagnosis", "Records of the last operations of each rank"},
    {"comm", "Groups of ranks and their communication"},
    {"tensors", "Tensors and randomness"},
    {"core", "Configurations, errors, meshes, placements; without LibTorch"}};

const fs::path kPublic = kRoot / "include/gantry";

// "nn/attention.h" of every "gantry/nn/attention.h".
std::vector<std::string> headers_named_in(const std::string& text) {
  static const std::regex kHeader("(^|[^/a-z])gantry/([a-z_/0-9]+\\.h)\\b");
  std::vector<std::string> names;
  for (std::sregex_iterator match(text.begin(), text.end(), kHeader), end; match != end; ++match)
    names.push_back((*match)[2]);
  return names;
}

std::string text_of(const std::string& name) { return read_file((kPublic / name).string()); }

std::set<std::string> public_headers() {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(kPublic))
    if (entry.is_regular_file()) names.insert(fs::relative(entry.path(), kPublic).string());
  return names;
}

// The headers that users meet: gantry.h, the headers that pages, their code, examples and templates name, and all
// headers that these include.
std::set<std::string> shown_headers() {
  std::vector<std::string> open{"booster/gantry.h"};
  const auto add = [&](const std::string& text) {
    for (const auto& name : headers_named_in(text)) open.push_back(name);
  };
  for (const auto& document : documents()) add(read_file(document.path.string()));
  add(read_file((kRoot / "tests/booster/snippets_test.cpp").string()));
  for (const char* folder : {"examples", "tests/consumer", "cli/init/template"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
      if (entry.is_regular_file()) add(read_file(entry.path().string()));
  std::set<std::string> seen;
  while (!open.empty()) {
    const std::string name = open.back();
    open.pop_back();
    if (!seen.insert(name).second) continue;
    EXPECT_TRUE(fs::exists(kPublic / name)) << name << " is shown to users, but is not a public header";
    if (fs::exists(kPublic / name)) add(text_of(name));
  }
  return seen;
}

// Converts a comment. Indented lines after an empty line are code. In prose, only `code` is markup.
std::string as_markdown(const std::string& comment) {
  std::string text;
  bool is_code = false, is_block = false, after_empty = true;
  for (const auto& line : lines_of(comment)) {
    is_block = !line.empty() && (is_block || (after_empty && line.starts_with("  ")));
    after_empty = line.empty();
    if (is_block) text += "  ";
    for (const char c : line) {
      if (c == '`') is_code = !is_code;
      if (!is_code && !is_block && (c == '<' || c == '*')) text += '\\';
      text += c;
    }
    text += '\n';
  }
  return text;
}

std::string section_of(const std::string& name) {
  const std::string header = text_of(name), purpose = purpose_of(header);
  EXPECT_FALSE(purpose.empty()) << name << " does not say what it is for";
  std::string text =
      fmt::format("\n## {0}\n\n{1}\n[The header](../../include/gantry/{0}).\n", name, as_markdown(purpose));
  for (const auto& declaration : declarations_in(header)) {
    for (const auto& each : declaration.names) EXPECT_FALSE(each.empty()) << name << " declares\n" << declaration.code;
    text += fmt::format("\n### {}\n\n", fmt::join(declaration.names, ", "));
    if (!declaration.contract.empty()) text += as_markdown(declaration.contract) + "\n";
    text += fmt::format("```cpp\n{}```\n", declaration.code);
  }
  return text;
}

TEST(ApiReference, HasEveryDeclarationOfThePublicHeaders) {
  std::string index =
      "# C++ API\n\nThis reference is for authors of training programs. `#include \"gantry/booster/gantry.h\"` "
      "declares "
      "all that a\nusual program needs. Each folder of public headers has a page with its declarations and their "
      "contracts:\nshapes, units, ownership, errors, and the ranks over which a call is collective. `./dev pages` "
      "generates these\npages from the headers.\n";
  const auto headers = public_headers();
  std::size_t in_folders = 0;
  for (const auto& [folder, about] : kApiFolders) {
    std::string page = fmt::format(
        "# {}/\n\n{}. `./dev pages` generates this page from the headers; [all folders](../api.md).\n", folder, about);
    index += fmt::format("\n## [{0}](api/{0}.md)\n\n{1}.\n\n| header | declares |\n|---|---|\n", folder, about);
    for (const auto& name : headers) {
      if (!name.starts_with(std::string(folder) + "/")) continue;
      ++in_folders;
      page += section_of(name);
      std::vector<std::string> names;
      for (const auto& declaration : declarations_in(text_of(name)))
        for (const auto& each : declaration.names)
          if (const auto shown = "`" + each.substr(each.rfind(' ') + 1) + "`";
              std::find(names.begin(), names.end(), shown) == names.end())
            names.push_back(shown);
      index += fmt::format("| [{}](../include/gantry/{}) | {} |\n", name, name, fmt::join(names, ", "));
    }
    expect_page(fmt::format("api/{}.md", folder), page);
  }
  expect_page("api.md", index);
  EXPECT_EQ(in_folders, headers.size()) << "a directory of include/gantry is not among kApiFolders";
}

// A header that only the project's sources include is next to them, not public.
TEST(ApiReference, PublicHeadersAreThoseThatUsersAreShown) {
  const auto there = public_headers(), shown = shown_headers();
  std::vector<std::string> private_ones;
  std::set_difference(there.begin(), there.end(), shown.begin(), shown.end(), std::back_inserter(private_ones));
  EXPECT_TRUE(private_ones.empty()) << "reached from no page or example: "
                                    << fmt::format("{}", fmt::join(private_ones, ", "));
  EXPECT_GT(there.size(), 60u);
}

TEST(HeaderDeclarations, AreWithoutBodiesAndWhatIsPrivate) {
  const auto found = declarations_in(R"(// A header.
#pragma once
#include <x>

namespace gantry {

class Later;
using namespace other;  // NOLINT(google-build-using-namespace)
namespace detail {
int hidden();
}  // namespace detail

// Adds; [n].
// UsageError.
int add(const std::vector<int>& values, int by = f({1}));
int add(int value) { return value; }

// A thing.
template <class T>
class Thing final : public Base {
 public:
  explicit Thing(int size)
      : size_(size) {}
  // Its size.
  int size() const { return size_; }
  virtual void run(const std::string& text = "{") = 0;

 private:
  int size_ = 0;
};

struct Options {
  int a = 0;  // first
  std::vector<int> b = {};
  bool is_set() const {
    return a > 0;
  }
};

template <class T>
requires requires(const T& t) { t.ptr(); }
int add(const T& value) { return 1; }  // one

inline constexpr int kMost = 3;
using Names = std::vector<std::string>;

}  // namespace gantry
)");
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found[0].names, std::vector<std::string>{"add"});
  EXPECT_EQ(found[0].contract, "Adds; [n].\nUsageError.\n");
  EXPECT_EQ(found[0].code, "int add(const std::vector<int>& values, int by = f({1}));\nint add(int value);\n");
  EXPECT_EQ(found[1].names, std::vector<std::string>{"class Thing"});
  EXPECT_EQ(found[1].code,
            "template <class T>\nclass Thing final : public Base {\n  explicit Thing(int size);\n  // Its size.\n"
            "  int size() const;\n  virtual void run(const std::string& text = \"{\") = 0;\n};\n");
  EXPECT_EQ(found[2].code,
            "struct Options {\n  int a = 0;  // first\n  std::vector<int> b = {};\n  bool is_set() const;\n};\n");
  EXPECT_EQ(found[3].code,
            "template <class T>\nrequires requires(const T& t) { t.ptr(); }\nint add(const T& value);  // one\n");
  EXPECT_EQ(found[4].names, (std::vector<std::string>{"kMost", "Names"}));
  EXPECT_EQ(found[4].code, "inline constexpr int kMost = 3;\nusing Names = std::vector<std::string>;\n");
}

}  // namespace
}  // namespace gantry::testing
