// Reads one section of a configuration strictly, and collects every fault. Internal to core/ and planner/.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>
#include <yaml-cpp/yaml.h>

namespace gantry {

// Collects faults with their positions in the file.
struct ConfigFaults {
  std::string file;                  // empty: no file, so faults have no positions
  std::set<std::string> overridden;  // paths that --set has set
  std::vector<std::string> lines;    // limited to a number that a user would read
  std::size_t further = 0;           // number of faults beyond the limit

  bool is_overridden(const std::string& path) const;  // whether --set has set it, or a section that contains it
  std::string place_of(const std::string& path, const YAML::Mark& mark) const;  // the first part of an error
  void add(const std::string& path, const YAML::Mark& mark, const std::string& what, const std::string& expected,
           const std::string& remedy = "");
  std::string joined() const;
};

// Calls `take` for each key of the mapping at `path` that is a string. Reports a key that is not a string or that
// appears twice.
void visit_keys(const YAML::Node& mapping, const std::string& path, ConfigFaults& faults,
                const std::function<void(const YAML::Node& key, const YAML::Node& value)>& take);

// The position of the key at a dotted path, or of the innermost part of the path that exists.
YAML::Mark mark_of_key(const YAML::Node& document, const std::string& path);

class ConfigSection {
 public:
  // `path` is "" for the document, else the section, such as "parallel". A node that exists and is not a mapping is a
  // fault.
  ConfigSection(ConfigFaults& faults, std::string path, const YAML::Node& node);
  // Reports unknown keys and keys that appear twice. Call it last.
  void finish();

  bool has(const std::string& key);
  YAML::Node node(const std::string& key);
  // A value of `short_names` is stored as the name that it maps to.
  void text(const std::string& key, std::string& value, const std::vector<std::string>& allowed = {},
            const std::map<std::string, std::string>& short_names = {});
  void flag(const std::string& key, bool& value);
  template <class Integer>
  void integer(const std::string& key, Integer& value, long long least, long long most = 1'000'000'000);
  void number(const std::string& key, double& value, double least, double below, bool open_below = false);
  // `allowed`: the values that each entry may have, once; empty: any.
  void texts(const std::string& key, std::vector<std::string>& value, const std::vector<std::string>& allowed = {});
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

// Parses a plain scalar like a JSON literal: only decimal integers and finite decimal fractions are numbers.
std::optional<long long> parse_whole_number(const std::string& text);
std::optional<double> parse_number(const std::string& text);

}  // namespace gantry
