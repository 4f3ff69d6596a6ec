// str.format() and its format specifications.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "gantry/data/jinja/arithmetic.h"
#include "gantry/data/jinja/format.h"
#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/print.h"
#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

struct Spec {
  std::string fill = " ";
  char alignment = '\0', sign = '-', grouping = '\0', kind = '\0';
  bool is_alternate = false, has_zeros = false;
  int width = 0, precision = -1;
};

bool is_alignment(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

int read_number(const std::string& text, std::size_t& at) {
  Integer made = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9' && made < (1 << 24))
    made = 10 * made + (text[at++] - '0');
  return checked_width(made);
}

Spec parsed_spec(const std::string& text) {
  Spec made;
  std::size_t at = 0;
  const std::size_t first = byte_of(text, 1);
  if (first < text.size() && is_alignment(text[first])) {
    made.fill = text.substr(0, first);
    made.alignment = text[first];
    at = first + 1;
  } else if (!text.empty() && is_alignment(text[0])) {
    made.alignment = text[at++];
  }
  const auto takes = [&](char c) { return at < text.size() && text[at] == c ? ++at, true : false; };
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) made.sign = text[at++];
  made.is_alternate = takes('#');
  if (takes('0')) {
    made.has_zeros = true;
    if (made.alignment == '\0') made.alignment = '=', made.fill = "0";
  }
  made.width = read_number(text, at);
  if (at < text.size() && (text[at] == ',' || text[at] == '_')) made.grouping = text[at++];
  if (takes('.')) {
    if (at == text.size() || text[at] < '0' || text[at] > '9') throw RenderError("Format specifier missing precision");
    made.precision = read_number(text, at);
  }
  if (at < text.size()) made.kind = text[at++];
  if (at != text.size()) throw RenderError(fmt::format("Invalid format specifier '{}'", text));
  return made;
}

std::string grouped(const std::string& digits, char grouping) {
  const std::size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string made;
  for (std::size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % 3 == 0) made += grouping;
    made += digits[i];
  }
  return made + digits.substr(end);
}

std::string formatted_text(const Value& value, const Spec& spec) {
  if (spec.kind != '\0' && spec.kind != 's')
    throw RenderError(fmt::format("Unknown format code '{}' for object of type 'str'", spec.kind));
  if (spec.alignment == '=') throw RenderError("'=' alignment not allowed in string format specifier");
  std::string body = value.bytes();
  if (spec.precision >= 0) body.resize(byte_of(body, static_cast<std::size_t>(spec.precision)));
  return aligned(body, spec.alignment == '\0' ? '<' : spec.alignment, spec.fill, static_cast<std::size_t>(spec.width));
}

std::string number_digits(const Value& value, const Spec& spec) {
  const char kind = spec.kind == 'n' ? 'd' : spec.kind;
  const bool is_integral = std::string_view("dboxX").find(kind) != std::string_view::npos;
  if (kind != '\0' &&
      (std::string_view("dboxXeEfFgG%").find(kind) == std::string_view::npos || (is_integral && value.is_real())))
    throw RenderError(fmt::format("Unknown format code '{}' for object of type '{}'", spec.kind, value.type_name()));
  if (kind != '\0') return digits_of(value, kind, spec.precision, spec.is_alternate);
  if (value.is_int()) return digits_of(value, 'd', -1, false);
  if (spec.precision >= 0) {
    std::string made = digits_of(value, 'g', std::max(spec.precision, 1), false);
    return made.find_first_of(".en") == std::string::npos ? made + ".0" : made;
  }
  return printed(std::abs(value.number()));
}

std::string formatted_number(const Value& value, const Spec& spec) {
  std::string digits = number_digits(value, spec);
  if (spec.grouping != '\0') digits = grouped(digits, spec.grouping);
  const bool is_negative = value.is_real() ? std::signbit(value.number()) : value.whole() < 0;
  const std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  const auto width = static_cast<std::size_t>(spec.width);
  if (spec.alignment == '=')
    return sign + aligned(digits, '>', spec.fill, width > sign.size() ? width - sign.size() : 0);
  return aligned(sign + digits, spec.alignment == '\0' ? '>' : spec.alignment, spec.fill, width);
}

class BraceFormatter {
 public:
  explicit BraceFormatter(const Arguments& arguments) : arguments_(arguments) {}

  std::string format(const std::string& text, int level) {
    if (level > 1) throw RenderError("Max string recursion exceeded");
    std::string made;
    for (std::size_t at = 0; at < text.size();) {
      const char c = text[at++];
      if ((c == '{' || c == '}') && at < text.size() && text[at] == c) {
        made += c;
        ++at;
      } else if (c == '}') {
        throw RenderError("Single '}' encountered in format string");
      } else if (c == '{') {
        const std::size_t end = end_of_field(text, at);
        made += field(text.substr(at, end - at), level);
        at = end + 1;
      } else {
        made += c;
      }
      require_text_size(1, made.size());
    }
    return made;
  }

 private:
  static std::size_t end_of_field(const std::string& text, std::size_t at) {
    int open = 1;
    for (; at < text.size(); ++at) {
      if (text[at] == '{') ++open;
      if (text[at] == '}' && --open == 0) return at;
    }
    throw RenderError("expected '}' before end of string");
  }

  std::string field(const std::string& text, int level) {
    const std::size_t colon = text.find(':');
    std::string head = text.substr(0, colon);
    const std::string spec = colon == std::string::npos ? "" : format(text.substr(colon + 1), level + 1);
    char conversion = '\0';
    if (const auto mark = head.find('!'); mark != std::string::npos) {
      if (mark + 2 != head.size()) throw RenderError("expected ':' after conversion specifier");
      conversion = head.back();
      head.resize(mark);
    }
    Value value = value_of(head);
    if (conversion == 's')
      value = Value::text(str(value));
    else if (conversion == 'r' || conversion == 'a')
      value = Value::text(repr(value));
    else if (conversion != '\0')
      throw RenderError(fmt::format("Unknown conversion specifier '{}'", conversion));
    return formatted(value, spec);
  }

  Value value_of(const std::string& path) {
    std::size_t at = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, at));
    while (at < path.size()) {
      const bool is_item = path[at] == '[';
      const std::size_t end = is_item ? path.find(']', at) : path.find_first_of(".[", at + 1);
      if (is_item && end == std::string::npos) throw RenderError("Missing ']' in format string");
      const std::string name = path.substr(at + 1, std::min(end, path.size()) - at - 1);
      const auto index = is_item ? read_integer(name, 10) : std::nullopt;
      value = !is_item ? attribute_of(value, name) : item_of(value, index ? Value::integer(*index) : Value::text(name));
      if (value.is_undefined()) throw RenderError(value.why());
      at = is_item ? end + 1 : std::min(end, path.size());
    }
    return value;
  }

  Value argument(const std::string& name) {
    const bool is_number = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    if (name.empty() || is_number) {
      const std::size_t index = name.empty() ? next_++ : static_cast<std::size_t>(std::stoul(name.substr(0, 6)));
      if (index >= arguments_.values.size()) throw RenderError("Replacement index out of range for positional args");
      return arguments_.values[index];
    }
    for (const auto& [each, value] : arguments_.named)
      if (each == name) return value;
    throw RenderError(fmt::format("format has no argument '{}'", name));
  }

  const Arguments& arguments_;
  std::size_t next_ = 0;
};

}  // namespace

std::string formatted(const Value& value, const std::string& spec) {
  if (spec.empty()) return str(value);
  if (value.is_text()) return formatted_text(value, parsed_spec(spec));
  if (value.is_number()) return formatted_number(value, parsed_spec(spec));
  throw RenderError(fmt::format("unsupported format string passed to {}.__format__", value.type_name()));
}

std::string brace_format(const std::string& text, const Arguments& arguments) {
  return BraceFormatter(arguments).format(text, 0);
}

}  // namespace gantry::jinja
