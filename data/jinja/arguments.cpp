#include "gantry/data/jinja/arguments.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/data/jinja/meter.h"

namespace gantry::jinja {

Bound::Bound(std::string what, const Arguments& arguments, std::initializer_list<const char*> names)
    : what_(std::move(what)), names_(names), found_(names.size()) {
  if (arguments.values.size() > names_.size())
    throw RenderError(
        fmt::format("{} takes at most {} arguments; {} are given", what_, names_.size(), arguments.values.size()));
  std::ranges::copy(arguments.values, found_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::ranges::find(names_, name) - names_.begin();
    if (place == static_cast<std::ptrdiff_t>(names_.size()))
      throw RenderError(fmt::format("{} has no parameter '{}'", what_, name));
    if (found_[static_cast<std::size_t>(place)])
      throw RenderError(fmt::format("{} has several values for '{}'", what_, name));
    found_[static_cast<std::size_t>(place)] = value;
  }
}

const Value& Bound::required(std::size_t index) const {
  if (!has(index)) throw RenderError(fmt::format("{} needs the argument '{}'", what_, names_[index]));
  return *found_[index];
}

Integer Bound::whole(std::size_t index) const {
  const Value& value = required(index);
  if (!value.is_int())
    throw RenderError(fmt::format("{}: '{}' is of type {}; expected an int", what_, names_[index], value.type_name()));
  return value.whole();
}

std::string Bound::text(std::size_t index) const {
  const Value& value = required(index);
  if (!value.is_text())
    throw RenderError(fmt::format("{}: '{}' is of type {}; expected a str", what_, names_[index], value.type_name()));
  return value.bytes();
}

}  // namespace gantry::jinja
