// Values as text: str(), repr() and json.dumps() of Python.
#pragma once

#include <optional>
#include <string>

#include "gantry/data/jinja/value.h"

namespace gantry::jinja {

std::string printed(Integer value);
std::string printed(double value);  // repr() of a float

// Throw RenderError for a value that Python prints with an address, or that JSON cannot represent.
std::string str(const Value& value);
std::string repr(const Value& value);

struct JsonStyle {
  bool is_ascii = false;              // other characters as \u escapes
  std::optional<std::string> indent;  // text of one level of indentation
  std::string between_items = ", ", after_key = ": ";
  bool sorts_keys = false;
};
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace gantry::jinja
