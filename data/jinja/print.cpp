#include "gantry/data/jinja/print.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/object.h"
#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

constexpr std::size_t kMostPrinted = std::size_t{64} << 20;

void append_repr_of_text(const std::string& text, std::string& made) {
  const bool has_single = text.find('\'') != std::string::npos, has_double = text.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  made += quote;
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '\'' && c != '\\'; };
  if (std::ranges::all_of(text, is_plain)) {
    made += text;
    made += quote;
    return;
  }
  for (const auto character : characters(text)) {
    const char32_t point = code_points(character)[0];
    if (point == static_cast<unsigned char>(quote) || point == '\\')
      made += '\\', made += static_cast<char>(point);
    else if (point == '\n')
      made += "\\n";
    else if (point == '\r')
      made += "\\r";
    else if (point == '\t')
      made += "\\t";
    else if (is_printable(point))
      made += character;
    else
      made += point <= 0xFF     ? fmt::format("\\x{:02x}", static_cast<std::uint32_t>(point))
              : point <= 0xFFFF ? fmt::format("\\u{:04x}", static_cast<std::uint32_t>(point))
                                : fmt::format("\\U{:08x}", static_cast<std::uint32_t>(point));
  }
  made += quote;
}

void append_repr(const Value& value, std::string& made);

void append_items(const Values& items, std::string& made) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) made += ", ";
    append_repr(items[i], made);
  }
}

void append_mapping(const Mapping& mapping, std::string& made) {
  bool is_first = true;
  for (const auto& [key, value] : mapping.items()) {
    if (!is_first) made += ", ";
    is_first = false;
    append_repr(key, made);
    made += ": ";
    append_repr(value, made);
  }
}

void append_repr(const Value& value, std::string& made) {
  const Nesting nesting;
  spend_steps(1);
  if (made.size() > kMostPrinted) throw RenderError("a string of more than 64 MiB");
  if (value.is_text()) {
    if (value.is_safe()) made += "Markup(";
    append_repr_of_text(value.bytes(), made);
    if (value.is_safe()) made += ')';
  } else if (value.is_sequence()) {
    const bool is_tuple = value.sequence().is_tuple;
    made += is_tuple ? '(' : '[';
    append_items(value.items(), made);
    if (is_tuple && value.items().size() == 1) made += ',';
    made += is_tuple ? ')' : ']';
  } else if (value.is_mapping()) {
    made += '{';
    append_mapping(value.entries(), made);
    made += '}';
  } else {
    made += value.is_undefined() ? "Undefined" : str(value);
  }
}

}  // namespace

std::string printed(Integer value) {
  const bool is_negative = value < 0;
  std::string digits;
  auto rest = static_cast<unsigned __int128>(is_negative ? -value : value);
  do {
    digits += static_cast<char>('0' + static_cast<int>(rest % 10));
    rest /= 10;
  } while (rest != 0);
  if (is_negative) digits += '-';
  std::ranges::reverse(digits);
  return digits;
}

// The shortest digits that read back as the number; in scientific form below 1e-4 and from 1e16.
std::string printed(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> text{};
  auto made = std::to_chars(text.begin(), text.end(), value, std::chars_format::scientific);
  std::string scientific(text.begin(), made.ptr);
  const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  if (value != 0 && (exponent < -4 || exponent >= 16)) return scientific;
  made = std::to_chars(text.begin(), text.end(), value, std::chars_format::fixed);
  std::string fixed(text.begin(), made.ptr);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string repr(const Value& value) {
  std::string made;
  append_repr(value, made);
  return made;
}

std::string str(const Value& value) {
  if (value.is_text()) return value.bytes();
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (value.is_boolean()) return value.truth() ? "True" : "False";
  if (value.is_integer()) return printed(value.whole());
  if (value.is_real()) return printed(value.number());
  if (value.is_sequence() || value.is_mapping()) return repr(value);
  if (auto text = value.as<Object>()->repr()) return *text;
  throw RenderError(fmt::format("'{}' object has no text", value.type_name()));
}

}  // namespace gantry::jinja
