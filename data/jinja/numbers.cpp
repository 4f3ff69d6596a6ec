// Reading and rounding of numbers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>

#include "gantry/data/jinja/arithmetic.h"
#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

constexpr double kBeyondInteger = 1.7e38;
constexpr Integer kMostDecimals = 330;

// Returns the text without surrounding white space and without underscores between digits; nothing if an
// underscore is elsewhere.
std::optional<std::string> plain_digits(const std::string& stated) {
  const std::string text(without_right(without_left(stated, {}), {}));
  std::string made;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      made += text[i];
      continue;
    }
    const auto is_digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) return {};
  }
  return made;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// Removes the prefix of the base: 0x, 0o or 0b. `base` 0: the base of the prefix.
void read_prefix(std::string_view& digits, int& base) {
  if (digits.size() > 1 && digits[0] == '0') {
    const char kind = static_cast<char>(digits[1] | 0x20);
    const int stated = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (stated != 0 && (base == 0 || base == stated)) {
      digits.remove_prefix(2);
      base = stated;
    }
  }
  if (base == 0) base = 10;
}

// Half to even, at a place before the point.
Value rounded_integer(Integer value, Integer digits) {
  if (digits >= 0) return Value::integer(value);
  if (digits < -38) return Value::integer(0);
  Integer unit = 1;
  for (Integer i = digits; i < 0; ++i) unit *= 10;
  Integer quotient = value / unit;
  const Integer rest = value % unit, twice = 2 * (rest < 0 ? -rest : rest);
  if (twice > unit || (twice == unit && quotient % 2 != 0)) quotient += value < 0 ? -1 : 1;
  return Value::integer(quotient * unit);
}

}  // namespace

std::optional<Integer> read_integer(const std::string& text, int base) {
  const auto plain = plain_digits(text);
  if (!plain) return {};
  std::string_view digits = *plain;
  const bool is_negative = digits.starts_with('-');
  if (is_negative || digits.starts_with('+')) digits.remove_prefix(1);
  read_prefix(digits, base);
  if (digits.empty()) return {};
  Integer made = 0;
  for (const char c : digits) {
    if (digit_of(c) >= base) return {};
    if (__builtin_mul_overflow(made, Integer(base), &made) || __builtin_add_overflow(made, Integer(digit_of(c)), &made))
      throw RenderError("an integer of more than 38 digits");
  }
  return is_negative ? -made : made;
}

std::optional<double> read_real(const std::string& text) {
  const auto plain = plain_digits(text);
  if (!plain || plain->empty()) return {};
  std::string_view digits = *plain;
  const bool is_negative = digits.starts_with('-');
  if (is_negative || digits.starts_with('+')) digits.remove_prefix(1);
  const std::string word = lower(std::string(digits));
  if (digits.empty() || digits[0] == '-' || digits[0] == '+' || word.find('x') != std::string::npos ||
      word.find('(') != std::string::npos)
    return {};
  double made = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), made);
  if (end != digits.data() + digits.size()) return {};
  if (error == std::errc::result_out_of_range)
    made = std::strtod(std::string(digits).c_str(), nullptr);
  else if (error != std::errc())
    return {};
  return is_negative ? -made : made;
}

Integer truncated(double value) {
  if (std::isnan(value) || std::isinf(value))
    throw RenderError(fmt::format("cannot convert float {} to integer", std::isnan(value) ? "NaN" : "infinity"));
  if (std::abs(value) > kBeyondInteger) throw RenderError("an integer of more than 38 digits");
  return static_cast<Integer>(value);
}

Value rounded(const Value& value, Integer digits) {
  if (value.is_int()) return rounded_integer(value.whole(), digits);
  if (!value.is_real()) throw RenderError(fmt::format("type {} doesn't define __round__ method", value.type_name()));
  const double number = value.number();
  if (!std::isfinite(number) || digits > kMostDecimals) return value;
  if (digits >= 0)
    return Value::real(std::strtod(fmt::format("{:.{}f}", number, static_cast<int>(digits)).c_str(), nullptr));
  if (digits < -308) return Value::real(std::copysign(0.0, number));
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return Value::real(std::nearbyint(number / unit) * unit);
}

}  // namespace gantry::jinja
