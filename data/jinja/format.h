// Formats of text: the operator %, str.format() and format().
#pragma once

#include <string>

#include "gantry/data/jinja/object.h"
#include "gantry/data/jinja/value.h"

namespace gantry::jinja {

// `text` % `values`, which is a tuple, a dict for %(name)s, or one value.
std::string percent_format(const std::string& text, const Value& values);
std::string brace_format(const std::string& text, const Arguments& arguments);  // text.format(...)
std::string formatted(const Value& value, const std::string& spec);             // format(value, spec)

// A number in digits after its sign: kind is one of d, b, o, x, X, e, E, f, F, g, G and %. `precision` -1: the default.
std::string digits_of(const Value& value, char kind, int precision, bool is_alternate);

// `body` in `width` code points: '<' to the left, '>' to the right, '^' in the middle.
std::string aligned(const std::string& body, char alignment, const std::string& fill, std::size_t width);

// A width or precision. Throws RenderError for one that is too large.
int checked_width(Integer width);

}  // namespace gantry::jinja
