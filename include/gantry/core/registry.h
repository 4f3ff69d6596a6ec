// A registry of named factories. Registries are the only singletons in Gantry. Add entries before the ranks start, or
// from one thread at a time while libraries are loaded. Any thread may look up entries.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gantry/core/error.h"

namespace gantry {

template <class Value>
class Registry {
 public:
  explicit Registry(std::string kind) : kind_(std::move(kind)) {}

  // Throws ConfigError if the name is already registered.
  void add(const std::string& name, Value value) {
    const std::lock_guard lock(mutex_);
    if (!values_.emplace(name, std::move(value)).second)
      throw ConfigError({kind_ + " '" + name + "'", "the name is registered twice", "", "choose another name"});
  }

  // Throws ConfigError with the known names and the most similar one if the name is not registered.
  const Value& at(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    if (const auto found = values_.find(name); found != values_.end()) return found->second;
    std::string known;
    std::vector<std::string> all;
    for (const auto& [key, value] : values_) known += (known.empty() ? "" : ", ") + key, all.push_back(key);
    const std::string near = nearest_name(name, all);
    throw ConfigError(
        {kind_, "'" + name + "' is not registered", "one of " + known,
         near.empty() ? "register it, or name its shared library under libraries" : "did you mean '" + near + "'?"});
  }

  bool contains(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return values_.contains(name);
  }

  std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> all;
    for (const auto& [key, value] : values_) all.push_back(key);
    return all;
  }

 private:
  std::string kind_;
  mutable std::mutex mutex_;
  std::map<std::string, Value> values_;  // node-based, so references stay valid
};

}  // namespace gantry
