// Patterns of one key of the configuration, each of which has to be of use.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace gantry {

class NamePatterns {
 public:
  // `key`: for messages. The patterns must outlive it; "*" in them is any text.
  NamePatterns(std::string key, const std::vector<std::string>& patterns)
      : key_(std::move(key)), patterns_(patterns), used_(patterns.size()) {}
  // Whether any of them is the parameter's.
  bool match(const std::string& name);
  // ConfigError for one that was no parameter's, naming the nearest that there is.
  void check_use() const;

 private:
  std::string key_;
  const std::vector<std::string>& patterns_;
  std::vector<bool> used_;
  std::set<std::string> names_;  // that were asked for
};

}  // namespace gantry
