// Reads one section of a configuration strictly, collecting every fault. Internal to core/ and planner/.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>
#include <yaml-cpp/yaml.h>

namespace gantry {

// Where faults go, and how places are named.
struct ConfigFaults {
  std::string file;
  std::set<std::string> overridden;  // paths that --set gave
  std::vector<std::string> lines;    // at most as many as a reader would read
  std::size_t unsaid = 0;            // faults beyond those

  bool is_overridden(const std::string& path) const;  // whether --set gave it, or a section that it is in
  void add(const std::string& path, const YAML::Mark& mark, const std::string& what, const std::string& expected,
           const std::string& remedy = "");
  std::string joined() const;
};

// Gives each key of a mapping at `path` that is text, with its value. A key that is no text, or there twice, is a
// fault.
void visit_keys(const YAML::Node& mapping, const std::string& path, ConfigFaults& faults,
                const std::function<void(const YAML::Node& key, const YAML::Node& value)>& take);

// Where the key at a dotted path stands; the innermost part of the path that is there.
YAML::Mark mark_of_key(const YAML::Node& document, const std::string& path);

class ConfigSection {
 public:
  // `path` is "" for the whole, else "parallel". A node that is there and no mapping is a fault.
  ConfigSection(ConfigFaults& faults, std::string path, const YAML::Node& node);
  // Reports keys that nobody asked for, and keys that are there twice. Called last.
  void finish();

  bool has(const std::string& key);
  YAML::Node node(const std::string& key);
  void text(const std::string& key, std::string& value, const std::vector<std::string>& allowed = {});
  void flag(const std::string& key, bool& value);
  template <class Integer>
  void integer(const std::string& key, Integer& value, long long least, long long most = 1'000'000'000);
  void number(const std::string& key, double& value, double least, double below, bool open_below = false);
  void texts(const std::string& key, std::vector<std::string>& value);
  std::optional<std::vector<int>> integers(const std::string& key, long long least);
  void fault(const std::string& key, const std::string& what, const std::string& expected,
             const std::string& remedy = "");

 private:
  std::string path_of(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  std::optional<std::string> scalar(const std::string& key, const std::string& expected);
  std::optional<std::string> plain(const std::string& key, const std::string& expected);
  std::optional<long long> whole_number(const std::string& key, long long least, long long most);

  ConfigFaults& faults_;
  std::string path_;
  YAML::Node node_;
  std::vector<std::string> known_;
};

template <class Integer>
void ConfigSection::integer(const std::string& key, Integer& value, long long least, long long most) {
  if (const auto read = whole_number(key, least, most)) value = static_cast<Integer>(*read);
}

// A plain scalar as a JSON literal would read: only decimal whole numbers and finite decimal fractions are numbers.
std::optional<long long> parse_whole_number(const std::string& text);
std::optional<double> parse_number(const std::string& text);

}  // namespace gantry
