#include "gantry/core/io/yaml_document.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <sstream>
#include <yaml-cpp/eventhandler.h>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;
constexpr int kDeepestLevel = 32;

[[noreturn]] void refuse(const std::string& name, const YAML::Mark& mark, const std::string& what,
                         const std::string& remedy) {
  // A mark without a position has negative numbers.
  throw ConfigError(
      {fmt::format("{}:{}:{}", name, std::max(0, mark.line) + 1, std::max(0, mark.column) + 1), what, "", remedy});
}

// The position of a byte, before the parser has read the text.
YAML::Mark mark_at(const std::string& text, std::size_t offset) {
  YAML::Mark mark;
  for (std::size_t i = 0; i < std::min(offset, text.size()); ++i) {
    const bool line_ends = text[i] == '\n';
    mark.line += line_ends ? 1 : 0;
    mark.column = line_ends ? 0 : mark.column + (continues_utf8(text[i]) ? 0 : 1);
  }
  return mark;
}

// Reads the events of a document without building nodes.
class Checker : public YAML::EventHandler {
 public:
  explicit Checker(const std::string& name) : name_(name) {}
  const YAML::Mark& start() const { return mark_; }
  void OnDocumentStart(const YAML::Mark& mark) override { mark_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { check(mark, "", anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(name_, mark, "aliases are not supported", "write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check(mark, tag, anchor);
    if (value.find('\0') != std::string::npos) refuse(name_, mark, "the string contains a zero character", "remove it");
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    enter(mark, tag, anchor);
  }
  void OnSequenceEnd() override { --depth_; }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    enter(mark, tag, anchor);
  }
  void OnMapEnd() override { --depth_; }

 private:
  void enter(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    check(mark, tag, anchor);
    if (++depth_ > kDeepestLevel)
      refuse(name_, mark, fmt::format("the document is nested deeper than {} levels", kDeepestLevel), "flatten it");
  }
  void check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) refuse(name_, mark, "anchors are not supported", "write the value out where it is needed");
    if (!tag.empty() && tag != "?" && tag != "!")
      refuse(name_, mark, "the tag " + tag + " is not supported", "remove the tag");
  }

  std::string name_;
  YAML::Mark mark_;
  int depth_ = 0;
};

// yaml-cpp recurses for each opening bracket before an event could stop it.
void check_brackets(const std::string& text, const std::string& name) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[' || text[i] == '{') ++depth;
    if (text[i] == ']' || text[i] == '}') depth = std::max(0, depth - 1);
    if (depth > 2 * kDeepestLevel)
      refuse(name, mark_at(text, i), fmt::format("the document is nested deeper than {} levels", kDeepestLevel),
             "flatten it");
  }
}

void check_bytes(const std::string& text, const std::string& name) {
  if (text.size() > kMostBytes)
    refuse(name, mark_at(text, kMostBytes),
           fmt::format("the document has {} bytes, more than {}", text.size(), kMostBytes),
           "check that the file is a configuration");
  if (const auto zero = text.find('\0'); zero != std::string::npos)
    refuse(name, mark_at(text, zero), "the file contains a zero byte", "check that the file is a configuration");
  if (const auto bad = valid_utf8_prefix(text); bad < text.size())
    refuse(name, mark_at(text, bad), "the text is not UTF-8", "save it as UTF-8");
  // The parser would ignore the text after it up to the end of the line.
  if (const auto percent = text.starts_with('%') ? 0 : text.find("\n%"); percent != std::string::npos)
    refuse(name, mark_at(text, percent + (text[percent] == '\n')), "lines that begin with % are not supported",
           "remove the directive");
  const auto start = text.find_first_not_of(" \t\r\n");
  if (start != std::string::npos && text.compare(start, 2, "//") == 0)
    refuse(name, mark_at(text, start), "comments that begin with // are not supported", "begin comments with #");
}

// The first tab before the text of this line, or of the line before it. Lines count from 0.
std::optional<std::size_t> indentation_tab(const std::string& text, int last) {
  int line = 0;
  for (std::size_t begin = 0; begin < text.size() && line <= last; ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::size_t first = std::min(text.find_first_not_of(" \t", begin), end);
    if (const std::size_t tab = text.find('\t', begin); tab < first && first < end && line + 1 >= last) return tab;
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace

YAML::Node parse_yaml(const std::string& text, const std::string& name) {
  check_bytes(text, name);
  check_brackets(text, name);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    Checker checker(name);
    if (!parser.HandleNextDocument(checker)) return YAML::Node(YAML::NodeType::Map);
    Checker second(name);
    if (parser.HandleNextDocument(second))
      refuse(name, second.start(), "several documents, but one is expected", "remove the text after '---'");
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    if (const auto tab = indentation_tab(text, error.mark.line))
      refuse(name, mark_at(text, *tab), "the line is indented with a tab", "indent it with spaces");
    refuse(name, error.mark, error.msg, "check the YAML there");
  }
}

}  // namespace gantry
