#include "gantry/core/yaml_document.h"

#include <fmt/format.h>
#include <sstream>
#include <yaml-cpp/eventhandler.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;
constexpr int kMostDepth = 32;

[[noreturn]] void refuse(const std::string& name, const YAML::Mark& mark, const std::string& what,
                         const std::string& remedy) {
  throw ConfigError({fmt::format("{}:{}:{}", name, mark.line + 1, mark.column + 1), what, "", remedy});
}

// Walks the events of a document without building anything from them.
class Checker : public YAML::EventHandler {
 public:
  explicit Checker(const std::string& name) : name_(name) {}
  void OnDocumentStart(const YAML::Mark& mark) override { mark_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { check(mark, "", anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(name_, mark, "an alias", "write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check(mark, tag, anchor);
    if (value.find('\0') != std::string::npos) refuse(name_, mark, "a zero character", "take it out");
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
    if (++depth_ > kMostDepth)
      refuse(name_, mark, fmt::format("nested deeper than {} levels", kMostDepth), "flatten it");
  }
  void check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) refuse(name_, mark, "an anchor", "write the value out where it is needed");
    if (!tag.empty() && tag != "?" && tag != "!") refuse(name_, mark, "the tag " + tag, "take the tag out");
  }

  std::string name_;
  YAML::Mark mark_;
  int depth_ = 0;
};

// Whether the bytes are well-formed UTF-8 (RFC 3629).
bool is_utf8(const std::string& text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int more = lead < 0x80                   ? 0
                     : lead >= 0xC2 && lead < 0xE0 ? 1
                     : (lead & 0xF0) == 0xE0       ? 2
                     : lead >= 0xF0 && lead < 0xF5 ? 3
                                                   : -1;
    if (more < 0 || i + more >= text.size()) return false;
    unsigned code = more == 0 ? lead : lead & (0x3Fu >> more);
    for (int k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0) != 0x80) return false;
      code = code << 6 | (next & 0x3Fu);
    }
    const bool too_long = (more == 2 && code < 0x800) || (more == 3 && code < 0x10000);
    if (too_long || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF) return false;
    i += more + 1;
  }
  return true;
}

// yaml-cpp descends once for each opening bracket, before an event could stop it.
void check_brackets(const std::string& text, const std::string& name) {
  int depth = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') depth = std::max(0, depth - 1);
    if (depth > 2 * kMostDepth)
      throw ConfigError({name, fmt::format("nested deeper than {} levels", kMostDepth), "", "flatten it"});
  }
}

}  // namespace

YAML::Node parse_yaml(const std::string& text, const std::string& name) {
  if (text.size() > kMostBytes)
    throw ConfigError({name, fmt::format("has {} bytes", text.size()), fmt::format("at most {}", kMostBytes),
                       "is this a configuration?"});
  if (text.find('\0') != std::string::npos)
    throw ConfigError({name, "has a zero byte", "text", "is this a configuration?"});
  if (!is_utf8(text)) throw ConfigError({name, "is not UTF-8", "text", "save it as UTF-8"});
  check_brackets(text, name);
  if (const auto start = text.find_first_not_of(" \t\r\n");
      start != std::string::npos && text.compare(start, 2, "//") == 0)
    throw ConfigError({name + ":1:1", "a comment that begins with //", "YAML or JSON", "begin comments with #"});
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    Checker checker(name);
    if (!parser.HandleNextDocument(checker)) return YAML::Node(YAML::NodeType::Map);
    Checker second(name);
    if (parser.HandleNextDocument(second))
      throw ConfigError({name, "has several documents", "one", "take out what follows '---'"});
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    refuse(name, error.mark, error.msg, "check the YAML there");
  }
}

}  // namespace gantry
