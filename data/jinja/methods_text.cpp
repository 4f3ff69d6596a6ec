// Methods of str.
#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "gantry/data/jinja/arguments.h"
#include "gantry/data/jinja/format.h"
#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/methods.h"
#include "gantry/data/jinja/print.h"
#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

using TextCase = std::string (*)(const std::string&);

template <TextCase kChange>
Value changed_case(const Value& text, const Arguments& arguments) {
  const Bound bound("this method of str", arguments, {});
  return Value::text(kChange(text.bytes()), text.is_safe());
}

template <bool kLeft, bool kRight>
Value stripped(const Value& text, const Arguments& arguments) {
  const Bound bound("strip()", arguments, {"chars"});
  const bool has_characters = !bound.get(0).is_none();
  const std::u32string stated = has_characters ? code_points(bound.text(0)) : std::u32string();
  std::string_view made = text.bytes();
  if (has_characters && stated.empty()) return text;
  if constexpr (kLeft) made = without_left(made, stated);
  if constexpr (kRight) made = without_right(made, stated);
  return Value::text(std::string(made), text.is_safe());
}

template <bool kFromRight>
Value split(const Value& text, const Arguments& arguments) {
  const Bound bound("split()", arguments, {"sep", "maxsplit"});
  return Value::list(split_text(text.bytes(), bound.get(0), bound.whole(1, -1), kFromRight));
}

Value lines(const Value& text, const Arguments& arguments) {
  const Bound bound("splitlines()", arguments, {"keepends"});
  return Value::list(split_lines(text.bytes(), bound.flag(0, false)));
}

Value replace(const Value& text, const Arguments& arguments) {
  const Bound bound("replace()", arguments, {"old", "new", "count"});
  return Value::text(replaced(text.bytes(), bound.text(0), bound.text(1), bound.whole(2, -1)), text.is_safe());
}

// The part of a text between the code points that a search is bounded to, and where it begins.
struct Part {
  std::string text;
  Integer begin = 0;
  bool is_valid = true;
};

Part part_of(const Value& text, const Bound& bound) {
  if (!bound.has(1) && !bound.has(2)) return {text.bytes()};
  const Integer size = static_cast<Integer>(*length_of(text));
  Integer begin = bound.get(1).is_none() ? 0 : bound.whole(1);
  Integer end = bound.get(2).is_none() ? size : bound.whole(2);
  if (begin < 0) begin = std::max<Integer>(0, begin + size);
  if (end < 0) end = std::max<Integer>(0, end + size);
  end = std::min(end, size);
  if (begin > end) return {"", begin, false};
  return {slice_of(text, Value::integer(begin), Value::integer(end), Value()).bytes(), begin, true};
}

template <bool kFromRight>
Integer place_of(const Value& text, const Bound& bound) {
  const Part part = part_of(text, bound);
  if (!part.is_valid) return -1;
  const auto at = kFromRight ? part.text.rfind(bound.text(0)) : part.text.find(bound.text(0));
  if (at == std::string::npos) return -1;
  return part.begin + static_cast<Integer>(count_code_points(std::string_view(part.text).substr(0, at)));
}

template <bool kFromRight>
Value find(const Value& text, const Arguments& arguments) {
  return Value::integer(place_of<kFromRight>(text, Bound("find()", arguments, {"sub", "start", "end"})));
}

template <bool kFromRight>
Value index(const Value& text, const Arguments& arguments) {
  const Integer place = place_of<kFromRight>(text, Bound("index()", arguments, {"sub", "start", "end"}));
  if (place < 0) throw RenderError("substring not found");
  return Value::integer(place);
}

Value count(const Value& text, const Arguments& arguments) {
  const Bound bound("count()", arguments, {"sub", "start", "end"});
  const Part part = part_of(text, bound);
  const std::string sub = bound.text(0);
  if (!part.is_valid) return Value::integer(0);
  if (sub.empty()) return Value::integer(static_cast<Integer>(count_code_points(part.text)) + 1);
  Integer found = 0;
  for (auto at = part.text.find(sub); at != std::string::npos; at = part.text.find(sub, at + sub.size())) ++found;
  return Value::integer(found);
}

template <bool kAtEnd>
Value has_edge(const Value& text, const Arguments& arguments) {
  const Bound bound(kAtEnd ? "endswith()" : "startswith()", arguments, {"prefix", "start", "end"});
  const Part part = part_of(text, bound);
  const auto holds = [&](const Value& edge) {
    if (!edge.is_text()) throw RenderError("startswith and endswith take a str or a tuple of str");
    return part.is_valid && (kAtEnd ? part.text.ends_with(edge.bytes()) : part.text.starts_with(edge.bytes()));
  };
  const Value& edge = bound.required(0);
  return Value::boolean(edge.is_tuple() ? std::ranges::any_of(edge.items(), holds) : holds(edge));
}

Value without_prefix(const Value& text, const Arguments& arguments) {
  const std::string prefix = Bound("removeprefix()", arguments, {"prefix"}).text(0);
  return Value::text(text.bytes().starts_with(prefix) ? text.bytes().substr(prefix.size()) : text.bytes());
}

Value without_suffix(const Value& text, const Arguments& arguments) {
  const std::string suffix = Bound("removesuffix()", arguments, {"suffix"}).text(0);
  const std::string& bytes = text.bytes();
  return Value::text(bytes.ends_with(suffix) ? bytes.substr(0, bytes.size() - suffix.size()) : bytes);
}

template <bool kFromRight>
Value partition(const Value& text, const Arguments& arguments) {
  const std::string separator = Bound("partition()", arguments, {"sep"}).text(0);
  if (separator.empty()) throw RenderError("empty separator");
  const std::string& bytes = text.bytes();
  const auto at = kFromRight ? bytes.rfind(separator) : bytes.find(separator);
  const Value none = Value::text("");
  if (at == std::string::npos) return kFromRight ? Value::tuple({none, none, text}) : Value::tuple({text, none, none});
  return Value::tuple(
      {Value::text(bytes.substr(0, at)), Value::text(separator), Value::text(bytes.substr(at + separator.size()))});
}

Value join(const Value& text, const Arguments& arguments) {
  const Bound bound("join()", arguments, {"iterable"});
  std::string made;
  bool is_first = true;
  for (const Value& item : entries_of(bound.required(0))) {
    if (!item.is_text())
      throw RenderError(fmt::format("join(): expected str instances, but {} found", item.type_name()));
    if (!is_first) made += text.bytes();
    is_first = false;
    made += item.bytes();
    require_text_size(1, made.size());
  }
  return Value::text(std::move(made));
}

template <char kAlignment>
Value justified(const Value& text, const Arguments& arguments) {
  const Bound bound("just()", arguments, {"width", "fillchar"});
  const std::string fill = bound.text(1, " ");
  if (count_code_points(fill) != 1) throw RenderError("the fill character must be exactly one character long");
  const auto width = static_cast<std::size_t>(std::max(0, checked_width(bound.whole(0))));
  const std::size_t length = *length_of(text);
  if (kAlignment != '^' || width <= length) return Value::text(aligned(text.bytes(), kAlignment, fill, width));
  // Python puts the odd one of center() to the left if the width is odd.
  const std::size_t missing = width - length, left = missing / 2 + (missing & width & 1);
  return Value::text(aligned(aligned(text.bytes(), '>', fill, length + left), '<', fill, width));
}

Value zero_filled(const Value& text, const Arguments& arguments) {
  const auto width =
      static_cast<std::size_t>(std::max(0, checked_width(Bound("zfill()", arguments, {"width"}).whole(0))));
  const std::string& bytes = text.bytes();
  const std::size_t sign = bytes.starts_with('-') || bytes.starts_with('+') ? 1 : 0;
  return Value::text(bytes.substr(0, sign) + aligned(bytes.substr(sign), '>', "0", width > sign ? width - sign : 0));
}

Value without_tabs(const Value& text, const Arguments& arguments) {
  const int size = checked_width(Bound("expandtabs()", arguments, {"tabsize"}).whole(0, 8));
  std::string made;
  int column = 0;
  for (const auto character : characters(text.bytes())) {
    if (character == "\t") {
      const int spaces = size > 0 ? size - column % size : 0;
      require_text_size(1, made.size() + static_cast<std::size_t>(spaces));
      made.append(static_cast<std::size_t>(spaces), ' ');
      column += spaces;
      continue;
    }
    made += character;
    column = character == "\n" || character == "\r" ? 0 : column + 1;
  }
  return Value::text(std::move(made));
}

Value format(const Value& text, const Arguments& arguments) {
  return Value::text(brace_format(text.bytes(), arguments), text.is_safe());
}

Value format_map(const Value& text, const Arguments& arguments) {
  const Bound bound("format_map()", arguments, {"mapping"});
  if (!bound.required(0).is_mapping()) throw RenderError("format_map() takes a dict");
  Arguments named;
  for (const auto& [key, value] : bound.required(0).entries().items()) named.named.emplace_back(str(key), value);
  return Value::text(brace_format(text.bytes(), named));
}

// str.isalpha() and so on.
template <char... kName>
Value of_class(const Value& text, const Arguments& arguments) {
  static constexpr char kClass[] = {kName...};
  const Bound bound("this method of str", arguments, {});
  return Value::boolean(has_class(text.bytes(), std::string_view(kClass, sizeof...(kName))));
}

struct NamedText {
  std::string_view name;
  TextMethod method;
};

constexpr NamedText kMethods[] = {{"upper", changed_case<upper>},
                                  {"lower", changed_case<lower>},
                                  {"title", changed_case<title>},
                                  {"capitalize", changed_case<capitalize>},
                                  {"swapcase", changed_case<swap_case>},
                                  {"casefold", changed_case<fold_case>},
                                  {"strip", stripped<true, true>},
                                  {"lstrip", stripped<true, false>},
                                  {"rstrip", stripped<false, true>},
                                  {"split", split<false>},
                                  {"rsplit", split<true>},
                                  {"splitlines", lines},
                                  {"replace", replace},
                                  {"find", find<false>},
                                  {"rfind", find<true>},
                                  {"index", index<false>},
                                  {"rindex", index<true>},
                                  {"count", count},
                                  {"startswith", has_edge<false>},
                                  {"endswith", has_edge<true>},
                                  {"removeprefix", without_prefix},
                                  {"removesuffix", without_suffix},
                                  {"partition", partition<false>},
                                  {"rpartition", partition<true>},
                                  {"join", join},
                                  {"ljust", justified<'<'>},
                                  {"rjust", justified<'>'>},
                                  {"center", justified<'^'>},
                                  {"zfill", zero_filled},
                                  {"expandtabs", without_tabs},
                                  {"format", format},
                                  {"format_map", format_map},
                                  {"isalpha", of_class<'a', 'l', 'p', 'h', 'a'>},
                                  {"isalnum", of_class<'a', 'l', 'n', 'u', 'm'>},
                                  {"isdigit", of_class<'d', 'i', 'g', 'i', 't'>},
                                  {"isdecimal", of_class<'d', 'e', 'c', 'i', 'm', 'a', 'l'>},
                                  {"isnumeric", of_class<'n', 'u', 'm', 'e', 'r', 'i', 'c'>},
                                  {"isspace", of_class<'s', 'p', 'a', 'c', 'e'>},
                                  {"isupper", of_class<'u', 'p', 'p', 'e', 'r'>},
                                  {"islower", of_class<'l', 'o', 'w', 'e', 'r'>},
                                  {"istitle", of_class<'t', 'i', 't', 'l', 'e'>},
                                  {"isascii", of_class<'a', 's', 'c', 'i', 'i'>},
                                  {"isprintable", of_class<'p', 'r', 'i', 'n', 't', 'a', 'b', 'l', 'e'>},
                                  {"isidentifier", of_class<'i', 'd', 'e', 'n', 't', 'i', 'f', 'i', 'e', 'r'>}};

}  // namespace

TextMethod text_method(const std::string& name) {
  const auto* found = std::ranges::find_if(kMethods, [&](const NamedText& each) { return each.name == name; });
  return found == std::end(kMethods) ? nullptr : found->method;
}

}  // namespace gantry::jinja
