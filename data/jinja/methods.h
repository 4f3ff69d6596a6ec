// Methods of Python's types that jinja2's sandbox lets a template call.
#pragma once

#include <string>

#include "gantry/data/jinja/object.h"

namespace gantry::jinja {

bool has_method(const Value& value, const std::string& name);
Value call_method(const Value& value, const std::string& name, const Arguments& arguments);

// Those of str. Null if str has no such method.
using TextMethod = Value (*)(const Value& text, const Arguments& arguments);
TextMethod text_method(const std::string& name);

// str.split(separator, most) and str.splitlines(): also filters use them.
Values split_text(const std::string& text, const Value& separator, Integer most, bool from_right);
Values split_lines(const std::string& text, bool keeps_ends);
std::string replaced(const std::string& text, const std::string& old, const std::string& with, Integer most);

}  // namespace gantry::jinja
