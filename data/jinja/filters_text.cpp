// Filters of text.
#include <algorithm>
#include <fmt/format.h>

#include "gantry/data/jinja/arguments.h"
#include "gantry/data/jinja/arithmetic.h"
#include "gantry/data/jinja/filters.h"
#include "gantry/data/jinja/format.h"
#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/methods.h"
#include "gantry/data/jinja/print.h"
#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

// Returns a text unchanged, and other values as in str().
Value soft(const Value& value) { return value.is_text() ? value : Value::text(str(value)); }

// A method of str as a filter.
Value by_method(const char* method, const Value& value, const Arguments& arguments) {
  return text_method(method)(soft(value), arguments);
}

Value filter_upper(const Value& value, const Arguments& arguments) { return by_method("upper", value, arguments); }
Value filter_lower(const Value& value, const Arguments& arguments) { return by_method("lower", value, arguments); }
Value filter_capitalize(const Value& value, const Arguments& arguments) {
  return by_method("capitalize", value, arguments);
}
Value filter_trim(const Value& value, const Arguments& arguments) { return by_method("strip", value, arguments); }

Value filter_center(const Value& value, const Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  return by_method("center", value, {.values = {Value::integer(bound.whole(0, 80))}});
}

// Words begin after white space and -({[<, unlike those of str.title().
Value filter_title(const Value& value, const Arguments& arguments) {
  const Bound bound("title", arguments, {});
  const std::string text = str(value);
  std::string made, word;
  const auto close_word = [&] {
    const std::size_t first = byte_of(word, 1);
    made += upper(word.substr(0, first)) + lower(word.substr(first));
    word.clear();
  };
  for (const auto character : characters(text)) {
    const bool is_gap =
        is_space(code_points(character)[0]) || std::string_view("-({[<").find(character) != std::string_view::npos;
    if (!is_gap) {
      word += character;
      continue;
    }
    close_word();
    made += character;
  }
  close_word();
  return Value::text(std::move(made));
}

Value filter_replace(const Value& value, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"});
  const Integer most = bound.get(2).is_none() ? -1 : bound.whole(2);
  return Value::text(replaced(str(value), str(bound.required(0)), str(bound.required(1)), most));
}

Value filter_format(const Value& value, const Arguments& arguments) {
  if (!arguments.values.empty() && !arguments.named.empty())
    throw RenderError("can't handle positional and keyword arguments at the same time");
  if (arguments.named.empty()) return Value::text(percent_format(str(value), Value::tuple(arguments.values)));
  Mapping named;
  for (const auto& [name, each] : arguments.named) named.set(Value::text(name), each);
  return Value::text(percent_format(str(value), Value::mapping(std::move(named))));
}

Value filter_indent(const Value& value, const Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  if (!value.is_text()) throw RenderError(fmt::format("cannot indent a value of type {}", value.type_name()));
  const Value width = bound.get(0, Value::integer(4));
  const std::string indent =
      width.is_text() ? width.bytes()
                      : std::string(static_cast<std::size_t>(std::max(0, checked_width(bound.whole(0, 4)))), ' ');
  const bool indents_blank = bound.flag(2, false);
  std::string made;
  const Values lines = split_lines(value.bytes() + "\n", /*keeps_ends=*/false);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) made += '\n';
    if (i > 0 && (indents_blank || !lines[i].bytes().empty())) made += indent;
    made += lines[i].bytes();
    require_text_size(1, made.size());
  }
  return Value::text(bound.flag(1, false) ? indent + made : made);
}

Value filter_truncate(const Value& value, const Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const Integer length = bound.whole(0, 255);
  const std::string end = bound.text(2, "...");
  const Integer leeway = bound.get(3).is_none() ? 5 : bound.whole(3);
  const Integer room = length - static_cast<Integer>(count_code_points(end));
  if (room < 0 || leeway < 0) throw RenderError("a length below that of the end, or a leeway below 0");
  const auto size = length_of(value);
  if (!value.is_text() || !size) throw RenderError(fmt::format("a value of type {}", value.type_name()));
  if (static_cast<Integer>(*size) <= length + leeway) return value;
  std::string head = slice_of(value, Value(), Value::integer(room), Value()).bytes();
  if (!bound.flag(1, false)) head = head.substr(0, head.rfind(' '));
  return Value::text(head + end);
}

Value filter_wordcount(const Value& value, const Arguments& arguments) {
  const Bound bound("wordcount", arguments, {});
  Integer words = 0;
  bool is_within = false;
  for (const char32_t point : code_points(str(value))) {
    const bool is_word = is_word_character(point);
    if (is_word && !is_within) ++words;
    is_within = is_word;
  }
  return Value::integer(words);
}

std::string quoted_for_url(const Value& value, bool is_query) {
  std::string made;
  for (const char c : str(value)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = std::isalnum(byte) && byte < 0x80;
    if (is_plain || c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !is_query))
      made += c;
    else
      made += c == ' ' && is_query ? "+" : fmt::format("%{:02X}", byte);
  }
  return made;
}

Value filter_urlencode(const Value& value, const Arguments& arguments) {
  const Bound bound("urlencode", arguments, {});
  if (value.is_text() || !is_iterable(value)) return Value::text(quoted_for_url(value, false));
  std::string made;
  const Value pairs = value.is_mapping() ? (*own_attribute(value, "items")).as<Object>()->call({}) : value;
  for (const Value& pair : entries_of(pairs)) {
    const Values both = entries_of(pair);
    if (both.size() != 2) throw RenderError("an item is not a pair");
    if (!made.empty()) made += '&';
    made += quoted_for_url(both[0], true) + "=" + quoted_for_url(both[1], true);
  }
  return Value::text(std::move(made));
}

// Removes tags and comments, and reduces white space to single spaces.
Value filter_striptags(const Value& value, const Arguments& arguments) {
  const Bound bound("striptags", arguments, {});
  std::string text = str(value), made;
  for (const auto& [open, close] : {std::pair("<!--", "-->"), std::pair("<", ">")})
    for (auto begin = text.find(open); begin != std::string::npos; begin = text.find(open, begin)) {
      const auto end = text.find(close, begin);
      if (end == std::string::npos) break;
      text.erase(begin, end - begin + std::string_view(close).size());
    }
  for (const Value& word : split_text(text, Value(), -1, false)) made += (made.empty() ? "" : " ") + word.bytes();
  for (const auto& [entity, meant] : {std::pair("&lt;", "<"), std::pair("&gt;", ">"), std::pair("&#34;", "\""),
                                      std::pair("&quot;", "\""), std::pair("&#39;", "'"), std::pair("&amp;", "&")})
    made = replaced(made, entity, meant, -1);
  return Value::text(std::move(made));
}

Value filter_filesizeformat(const Value& value, const Arguments& arguments) {
  const Bound bound("filesizeformat", arguments, {"binary"});
  const bool is_binary = bound.flag(0, false);
  const auto bytes = value.is_number() ? std::optional(value.number())
                     : value.is_text() ? read_real(value.bytes())
                                       : std::nullopt;
  if (!bytes) throw RenderError("no number");
  const double base = is_binary ? 1024 : 1000;
  if (*bytes == 1) return Value::text("1 Byte");
  if (*bytes < base) return Value::text(printed(truncated(*bytes)) + " Bytes");
  double unit = base * base;
  std::size_t place = 0;
  for (; *bytes >= unit && place < 7; ++place) unit *= base;
  return Value::text(fmt::format("{:.1f} {}{}", base * *bytes / unit,
                                 "kMGTPEZY"[place] == 'k' && is_binary ? 'K' : "kMGTPEZY"[place],
                                 is_binary ? "iB" : "B"));
}

// Returns attributes of HTML, without those that are none or undefined.
Value filter_xmlattr(const Value& value, const Arguments& arguments) {
  const Bound bound("xmlattr", arguments, {"autospace"});
  if (!value.is_mapping()) throw RenderError("the value is not a dict");
  std::string made;
  for (const auto& [key, each] : value.entries().items()) {
    if (each.is_none() || each.is_undefined()) continue;
    const std::string name = str(key);
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      throw RenderError(fmt::format("invalid character in attribute name: {}", repr(key)));
    made += (made.empty() ? "" : " ") + escaped(name) + "=\"" + escaped(str(each)) + "\"";
  }
  return Value::text(bound.flag(0, true) && !made.empty() ? " " + made : made);
}

Value refused(const Value&, const Arguments&) { throw RenderError("not supported in chat templates"); }

}  // namespace

const NamedFilter kTextFilters[] = {{"upper", filter_upper},
                                    {"lower", filter_lower},
                                    {"capitalize", filter_capitalize},
                                    {"title", filter_title},
                                    {"trim", filter_trim},
                                    {"center", filter_center},
                                    {"replace", filter_replace},
                                    {"format", filter_format},
                                    {"indent", filter_indent},
                                    {"truncate", filter_truncate},
                                    {"wordcount", filter_wordcount},
                                    {"urlencode", filter_urlencode},
                                    {"striptags", filter_striptags},
                                    {"filesizeformat", filter_filesizeformat},
                                    {"xmlattr", filter_xmlattr},
                                    {"random", refused},
                                    {"urlize", refused},
                                    {"wordwrap", refused},
                                    {nullptr, nullptr}};

}  // namespace gantry::jinja
