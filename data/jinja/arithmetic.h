// Python's operators on values. They throw RenderError where Python raises an exception.
#pragma once

#include <optional>
#include <string>

#include "gantry/data/jinja/value.h"

namespace gantry::jinja {

Value add(const Value& one, const Value& other);
Value subtract(const Value& one, const Value& other);
Value multiply(const Value& one, const Value& other);
Value divide(const Value& one, const Value& other);
Value floor_divide(const Value& one, const Value& other);
Value modulo(const Value& one, const Value& other);  // formats `other` if `one` is a text
Value power(const Value& one, const Value& other);
Value negated(const Value& value);
Value positive(const Value& value);
Value absolute(const Value& value);
// round(): an int stays one. `digits` is bounded to the decimals of a double.
Value rounded(const Value& value, Integer digits);

// int(text, base) and float(text) of Python; nothing where they raise ValueError.
std::optional<Integer> read_integer(const std::string& text, int base);
std::optional<double> read_real(const std::string& text);
// int(number): towards zero. RenderError for nan, infinities, and beyond Integer.
Integer truncated(double value);

std::string escaped(const std::string& text);  // for HTML, with markupsafe's entities

}  // namespace gantry::jinja
