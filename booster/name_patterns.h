// Patterns of one key of the configuration, each of which must match a parameter.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace gantry {

class NamePatterns {
 public:
  // `key` is used in messages. The patterns must outlive this object. "*" in a pattern matches any text.
  NamePatterns(std::string key, const std::vector<std::string>& patterns)
      : key_(std::move(key)), patterns_(patterns), used_(patterns.size()) {}
  // Whether any pattern matches the parameter.
  bool match(const std::string& name);
  // Throws ConfigError for a pattern that matched no parameter; the error suggests the most similar name.
  void check_use() const;

 private:
  std::string key_;
  const std::vector<std::string>& patterns_;
  std::vector<bool> used_;
  std::set<std::string> names_;  // names passed to match()
};

}  // namespace gantry
