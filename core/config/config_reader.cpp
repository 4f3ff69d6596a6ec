#include "gantry/core/config/config_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"

namespace gantry {

namespace {

constexpr std::size_t kMostLines = 40;
constexpr std::size_t kMostShown = 400;  // maximum number of bytes for each part of a message

// Shortens huge keys and values of a hostile file, at the boundary of a character.
std::string shortened(const std::string& text) {
  if (text.size() <= kMostShown) return text;
  return fmt::format("{}... ({} bytes)", text.substr(0, utf8_start(text, kMostShown)), text.size());
}

// "parallel.tensor" -> "parallel" -> "".
std::string section_of(const std::string& path) {
  const auto dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

}  // namespace

bool ConfigFaults::is_overridden(const std::string& path) const {
  return std::any_of(overridden.begin(), overridden.end(), [&](const std::string& key) {
    return path == key || path.starts_with(key + ".") || path.starts_with(key + "[");
  });
}

// An override creates the sections on its way, which have no position in the file.
std::string ConfigFaults::place_of(const std::string& path, const YAML::Mark& mark) const {
  const std::string key = shortened(path);
  if (is_overridden(path)) return "--set " + key;
  for (std::string section = path; mark.is_null() && !section.empty(); section = section_of(section)) {
    const auto inside = overridden.lower_bound(section + ".");
    if (inside != overridden.end() && inside->starts_with(section + "."))
      return fmt::format("--set {}: {}", shortened(*inside), key);
  }
  if (file.empty()) return key;
  return fmt::format("{}:{}:{}: {}", file, std::max(0, mark.line) + 1, std::max(0, mark.column) + 1, key);
}

void ConfigFaults::add(const std::string& path, const YAML::Mark& mark, const std::string& what,
                       const std::string& expected, const std::string& remedy) {
  if (lines.size() == kMostLines) {
    ++further;
    return;
  }
  lines.push_back(format_error({place_of(path, mark), shortened(what), shortened(expected), remedy}));
}

std::string ConfigFaults::joined() const {
  return fmt::format("{}{}", fmt::join(lines, "; "), further > 0 ? fmt::format("; and {} more faults", further) : "");
}

void visit_keys(const YAML::Node& mapping, const std::string& path, ConfigFaults& faults,
                const std::function<void(const YAML::Node& key, const YAML::Node& value)>& take) {
  const std::string before = path.empty() ? "" : path + ".";
  std::set<std::string> seen;
  for (const auto& item : mapping) {
    const YAML::Node& key = item.first;
    if (!key.IsScalar()) {
      faults.add(before + "(a key)", key.Mark(), "the key is not a string", "a name");
      continue;
    }
    if (!seen.insert(key.Scalar()).second)
      faults.add(before + key.Scalar(), key.Mark(), "the key appears twice", "each key at most once");
    take(key, item.second);
  }
}

YAML::Mark mark_of_key(const YAML::Node& document, const std::string& path) {
  YAML::Node node = document;
  YAML::Mark mark = node.Mark();
  for (std::size_t begin = 0; node.IsMap();) {
    const std::size_t dot = path.find('.', begin);
    const std::string key = path.substr(begin, dot - begin);
    const auto found = std::find_if(node.begin(), node.end(), [&](const auto& item) {
      return item.first.IsScalar() && item.first.Scalar() == key;
    });
    if (found == node.end()) break;
    mark = found->first.Mark();
    if (dot == std::string::npos) break;
    begin = dot + 1;
    node.reset(YAML::Node(found->second));
  }
  return mark;
}

std::optional<long long> parse_whole_number(const std::string& text) {
  long long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(const std::string& text) {
  if (text.empty() || text.find_first_not_of("+-.0123456789eE") != std::string::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

ConfigSection::ConfigSection(ConfigFaults& faults, std::string path, const YAML::Node& node)
    : faults_(faults), path_(std::move(path)), node_(node.IsDefined() ? node : YAML::Node()) {
  if (!node_.IsNull() && !node_.IsMap()) {
    faults_.add(path_.empty() ? "the configuration" : path_, node_.Mark(), "the value is not a mapping",
                "keys with values");
    node_.reset(YAML::Node());
  }
}

void ConfigSection::finish() {
  if (!node_.IsMap()) return;
  visit_keys(node_, path_, faults_, [&](const YAML::Node& key, const YAML::Node&) {
    if (std::find(known_.begin(), known_.end(), key.Scalar()) != known_.end()) return;
    const std::string near = nearest_name(key.Scalar(), known_);
    faults_.add(path_of(key.Scalar()), key.Mark(), "unknown key", fmt::format("one of {}", fmt::join(known_, ", ")),
                near.empty() ? "" : "did you mean '" + near + "'?");
  });
}

YAML::Node ConfigSection::node(const std::string& key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  const YAML::Node& section = node_;  // a const look-up adds nothing; the node for a missing key cannot be queried
  return has(key) ? section[key] : YAML::Node(YAML::NodeType::Undefined);
}

bool ConfigSection::has(const std::string& key) {
  const YAML::Node& section = node_;
  return section.IsMap() && section[key].IsDefined();
}

void ConfigSection::fault(const std::string& key, const std::string& what, const std::string& expected,
                          const std::string& remedy) {
  faults_.add(path_of(key), mark_of_key(node_, key), what, expected, remedy);
}

std::optional<std::string> ConfigSection::scalar(const std::string& key, const std::string& expected) {
  const YAML::Node value = node(key);
  if (!value.IsDefined()) return std::nullopt;
  if (!value.IsScalar()) {
    fault(key,
          value.IsNull()  ? "the key has no value"
          : value.IsMap() ? "the value is a mapping"
                          : "the value is a list",
          expected);
    return std::nullopt;
  }
  return value.Scalar();
}

// Like scalar(), but a quoted value is a string, not a number or flag.
std::optional<std::string> ConfigSection::plain(const std::string& key, const std::string& expected) {
  auto read = scalar(key, expected);
  if (!read || node_[key].Tag() != "!") return read;
  fault(key, "the value is the string '" + *read + "'", expected, "remove the quotes");
  return std::nullopt;
}

void ConfigSection::text(const std::string& key, std::string& value, const std::vector<std::string>& allowed,
                         const std::map<std::string, std::string>& short_names) {
  const std::string expected = allowed.empty() ? "text" : fmt::format("{}", fmt::join(allowed, ", "));
  auto read = scalar(key, expected);
  if (!read) return;
  if (const auto found = short_names.find(*read); found != short_names.end()) read = found->second;
  if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), *read) == allowed.end()) {
    const std::string near = nearest_name(*read, allowed);
    return fault(key, "'" + *read + "'", "one of " + expected, near.empty() ? "" : "did you mean '" + near + "'?");
  }
  value = *read;
}

void ConfigSection::flag(const std::string& key, bool& value) {
  const auto read = plain(key, "true or false");
  if (!read) return;
  if (*read != "true" && *read != "false") return fault(key, "'" + *read + "'", "true or false");
  value = *read == "true";
}

std::optional<long long> ConfigSection::whole_number(const std::string& key, long long least, long long most) {
  const std::string expected = fmt::format("a whole number from {} to {}", least, most);
  const auto read = plain(key, expected);
  if (!read) return std::nullopt;
  const auto value = parse_whole_number(*read);
  if (value && *value >= least && *value <= most) return value;
  fault(key, "'" + *read + "'", expected);
  return std::nullopt;
}

void ConfigSection::number(const std::string& key, double& value, double least, double below, bool open_below) {
  const std::string expected =
      below == std::numeric_limits<double>::infinity()
          ? (open_below ? fmt::format("a number above {}", least) : fmt::format("a number from {}", least))
          : fmt::format("a number from {} to below {}", least, below);
  const auto read = plain(key, expected);
  if (!read) return;
  const auto parsed = parse_number(*read);
  if (!parsed || *parsed < least || (open_below && *parsed == least) || *parsed >= below)
    return fault(key, "'" + *read + "'", expected);
  value = *parsed;
}

void ConfigSection::texts(const std::string& key, std::vector<std::string>& value,
                          const std::vector<std::string>& allowed) {
  const YAML::Node list = node(key);
  if (!list.IsDefined()) return;
  if (!list.IsSequence()) return fault(key, "the value is not a list", "a list of strings");
  std::vector<std::string> read;
  for (const auto& item : list) {
    if (!item.IsScalar()) return fault(key, "the list has an entry that is not a string", "a list of strings");
    const std::string& text = item.Scalar();
    if (!allowed.empty() && std::ranges::count(allowed, text) == 0)
      return fault(key, fmt::format("'{}' is not supported", text),
                   fmt::format("a list of {}", fmt::join(allowed, ", ")));
    if (!allowed.empty() && std::ranges::count(read, text) > 0)
      return fault(key, fmt::format("'{}' is listed twice", text), "each value once");
    read.push_back(text);
  }
  value = read;
}

std::optional<std::vector<int>> ConfigSection::integers(const std::string& key, long long least) {
  const YAML::Node list = node(key);
  std::vector<int> read;
  for (const auto& item : list) {  // positions are counted from 1
    const auto value = item.IsScalar() ? parse_whole_number(item.Scalar()) : std::nullopt;
    if (!value || *value < least || *value > 1'000'000) {
      fault(
          key,
          fmt::format("entry {} is {}", read.size() + 1, item.IsScalar() ? "'" + item.Scalar() + "'" : "not a number"),
          fmt::format("whole numbers of at least {}", least));
      return std::nullopt;
    }
    read.push_back(static_cast<int>(*value));
  }
  return read;
}

}  // namespace gantry
