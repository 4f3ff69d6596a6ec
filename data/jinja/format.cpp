#include "gantry/data/jinja/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>

#include "gantry/data/jinja/arithmetic.h"
#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/print.h"
#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

constexpr Integer kWidest = 1 << 20;

std::string in_base(Integer value, unsigned base, bool is_upper) {
  auto rest = static_cast<unsigned __int128>(value < 0 ? -value : value);
  std::string made;
  const std::string_view digits = is_upper ? "0123456789ABCDEF" : "0123456789abcdef";
  do {
    const auto digit = static_cast<std::size_t>(rest % base);
    made += digits[digit];
    rest /= base;
  } while (rest != 0);
  std::ranges::reverse(made);
  return made;
}

std::string printed_by_c(double value, char kind, int precision, bool is_alternate) {
  const std::string pattern = std::string(is_alternate ? "%#." : "%.") + "*" + kind;
  const int size = std::snprintf(nullptr, 0, pattern.c_str(), precision, value);
  std::string made(static_cast<std::size_t>(size) + 1, '\0');
  std::snprintf(made.data(), made.size(), pattern.c_str(), precision, value);
  made.pop_back();
  return made;
}

// One conversion of %: flags, width, precision and kind.
struct Conversion {
  std::string key;
  bool has_key = false, is_left = false, has_plus = false, has_space = false, has_zeros = false, is_alternate = false;
  int width = 0, precision = -1;
  char kind = 's';
};

class PercentFormatter {
 public:
  PercentFormatter(const std::string& text, const Value& values) : text_(text), values_(values) {}

  std::string format() {
    while (at_ < text_.size()) {
      if (text_[at_] != '%') {
        made_ += text_[at_++];
        continue;
      }
      ++at_;
      write(conversion());
    }
    const bool takes_all = used_ == (values_.is_tuple() ? values_.items().size() : 1);
    if (!takes_all && !values_.is_mapping() && !(values_.is_tuple() && values_.items().empty()))
      throw RenderError("not all arguments converted during string formatting");
    return std::move(made_);
  }

 private:
  char next() {
    if (at_ == text_.size()) throw RenderError("incomplete format");
    return text_[at_++];
  }

  Value argument() {
    if (values_.is_tuple() && used_ < values_.items().size()) return values_.items()[used_++];
    if (values_.is_tuple() || used_ > 0) throw RenderError("not enough arguments for format string");
    ++used_;
    return values_;
  }

  int number() {
    if (text_[at_] == '*') {
      ++at_;
      const Value value = argument();
      if (!value.is_int()) throw RenderError("* wants int");
      return checked_width(value.whole());
    }
    Integer made = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && made <= kWidest)
      made = 10 * made + (text_[at_++] - '0');
    return checked_width(made);
  }

  Conversion conversion() {
    Conversion made;
    if (at_ < text_.size() && text_[at_] == '(') {
      const auto end = text_.find(')', at_);
      if (end == std::string::npos) throw RenderError("incomplete format key");
      made.key = text_.substr(at_ + 1, end - at_ - 1);
      made.has_key = true;
      at_ = end + 1;
    }
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '-')
        made.is_left = true;
      else if (text_[at_] == '+')
        made.has_plus = true;
      else if (text_[at_] == ' ')
        made.has_space = true;
      else if (text_[at_] == '0')
        made.has_zeros = true;
      else if (text_[at_] == '#')
        made.is_alternate = true;
      else
        break;
    }
    if (at_ < text_.size()) made.width = number();
    if (made.width < 0) made.is_left = true, made.width = -made.width;
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      made.precision = at_ < text_.size() ? std::max(0, number()) : 0;
    }
    while (at_ < text_.size() && (text_[at_] == 'l' || text_[at_] == 'h' || text_[at_] == 'L')) ++at_;
    made.kind = next();
    return made;
  }

  Value value_of(const Conversion& how) {
    if (!how.has_key) return argument();
    if (!values_.is_mapping()) throw RenderError("format requires a mapping");
    const Value* found = values_.entries().find(how.key);
    if (!found) throw RenderError(fmt::format("format has no argument '{}'", how.key));
    return *found;
  }

  std::string text_body(const Conversion& how, const Value& value) {
    std::string body = how.kind == 's' ? str(value) : repr(value);
    if (how.precision >= 0) body.resize(byte_of(body, static_cast<std::size_t>(how.precision)));
    return body;
  }

  void write(const Conversion& how) {
    if (how.kind == '%') {
      made_ += '%';
      return;
    }
    const Value value = value_of(how);
    const char align = how.is_left ? '<' : '>';
    const auto width = static_cast<std::size_t>(how.width);
    if (how.kind == 's' || how.kind == 'r' || how.kind == 'a') {
      made_ += aligned(text_body(how, value), align, " ", width);
    } else if (how.kind == 'c') {
      if (!value.is_int() && !(value.is_text() && count_code_points(value.bytes()) == 1))
        throw RenderError("%c requires int or char");
      std::string body = value.is_text() ? value.bytes() : "";
      if (value.is_int()) append_utf8(static_cast<char32_t>(std::clamp<Integer>(value.whole(), 0, 0xD7FF)), body);
      made_ += aligned(body, align, " ", width);
    } else {
      write_number(how, value, align);
    }
    require_text_size(1, made_.size());
  }

  void write_number(const Conversion& how, const Value& value, char align) {
    if (std::string_view("diuoxXeEfFgG").find(how.kind) == std::string_view::npos)
      throw RenderError(fmt::format("unsupported format character '{}'", how.kind));
    const bool is_integral = std::string_view("diuoxX").find(how.kind) != std::string_view::npos;
    if (!value.is_number() || (value.is_real() && std::string_view("oxX").find(how.kind) != std::string_view::npos))
      throw RenderError(fmt::format("%{} format: a real number is required, not {}", how.kind, value.type_name()));
    const Value number = is_integral && value.is_real() ? Value::integer(truncated(value.number())) : value;
    const bool is_decimal = how.kind == 'i' || how.kind == 'u';
    std::string digits =
        digits_of(number, is_decimal ? 'd' : how.kind, is_integral ? -1 : how.precision, how.is_alternate);
    if (is_integral && how.precision >= 0) digits = aligned(digits, '>', "0", static_cast<std::size_t>(how.precision));
    const bool is_negative = number.is_real() ? std::signbit(number.number()) : number.whole() < 0;
    const std::string sign = is_negative ? "-" : how.has_plus ? "+" : how.has_space ? " " : "";
    const auto width = static_cast<std::size_t>(how.width);
    if (how.has_zeros && !how.is_left && width > sign.size()) digits = aligned(digits, '>', "0", width - sign.size());
    made_ += aligned(sign + digits, align, " ", width);
  }

  const std::string& text_;
  const Value& values_;
  std::size_t at_ = 0, used_ = 0;
  std::string made_;
};

}  // namespace

int checked_width(Integer width) {
  if (width > kWidest || width < -kWidest) throw RenderError("a width of more than 1048576 characters");
  return static_cast<int>(width);
}

std::string aligned(const std::string& body, char alignment, const std::string& fill, std::size_t width) {
  const std::size_t length = count_code_points(body);
  if (length >= width) return body;
  const std::size_t missing = width - length;
  require_text_size(missing, fill.size());
  const std::size_t left = alignment == '<' ? 0 : alignment == '>' ? missing : missing / 2;
  std::string made;
  for (std::size_t i = 0; i < left; ++i) made += fill;
  made += body;
  for (std::size_t i = left; i < missing; ++i) made += fill;
  return made;
}

std::string digits_of(const Value& value, char kind, int precision, bool is_alternate) {
  if (kind == 'd') return in_base(value.whole(), 10, false);
  if (kind == 'b') return (is_alternate ? "0b" : "") + in_base(value.whole(), 2, false);
  if (kind == 'o') return (is_alternate ? "0o" : "") + in_base(value.whole(), 8, false);
  if (kind == 'x' || kind == 'X')
    return (is_alternate ? std::string("0") + kind : "") + in_base(value.whole(), 16, kind == 'X');
  const double number = std::abs(value.number());
  if (std::isnan(number) || std::isinf(number)) {
    const std::string word = std::isnan(number) ? "nan" : "inf";
    return std::isupper(static_cast<unsigned char>(kind)) ? upper(word) : word;
  }
  if (kind == '%') return printed_by_c(100 * number, 'f', precision < 0 ? 6 : precision, is_alternate) + "%";
  return printed_by_c(number, kind, precision < 0 ? 6 : precision, is_alternate);
}

std::string percent_format(const std::string& text, const Value& values) {
  return PercentFormatter(text, values).format();
}

}  // namespace gantry::jinja
