#include "gantry/booster/name_patterns.h"

#include "gantry/core/base/wildcard.h"
#include "gantry/core/error.h"

namespace gantry {

bool NamePatterns::match(const std::string& name) {
  names_.insert(name);
  bool any = false;
  for (std::size_t i = 0; i < patterns_.size(); ++i)
    if (matches_pattern(patterns_[i], name, Star::kAnyText)) used_[i] = any = true;
  return any;
}

void NamePatterns::check_use() const {
  for (std::size_t i = 0; i < patterns_.size(); ++i) {
    if (used_[i]) continue;
    const std::string near = nearest_name(patterns_[i], names_);
    throw ConfigError({key_, "'" + patterns_[i] + "' matches no parameter", "",
                       near.empty() ? "look at the names with `gantry checkpoint inspect` or in the model"
                                    : "did you mean '" + near + "'?"});
  }
}

}  // namespace gantry
