// The arguments of filters, tests, methods and functions, by position or by name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gantry/data/jinja/object.h"

namespace gantry::jinja {

// Throws RenderError, which names `what`, for arguments that no parameter takes, and for those of another type.
class Bound {
 public:
  Bound(std::string what, const Arguments& arguments, std::initializer_list<const char*> names);

  bool has(std::size_t index) const { return found_[index].has_value(); }
  Value get(std::size_t index, const Value& fallback = {}) const { return has(index) ? *found_[index] : fallback; }
  const Value& required(std::size_t index) const;
  bool flag(std::size_t index, bool fallback) const { return has(index) ? found_[index]->truth() : fallback; }
  Integer whole(std::size_t index) const;
  Integer whole(std::size_t index, Integer fallback) const { return has(index) ? whole(index) : fallback; }
  std::string text(std::size_t index) const;
  std::string text(std::size_t index, const char* fallback) const { return has(index) ? text(index) : fallback; }

 private:
  std::string what_;
  std::vector<const char*> names_;
  std::vector<std::optional<Value>> found_;
};

}  // namespace gantry::jinja
