#include "gantry/data/jinja/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "gantry/data/jinja/format.h"
#include "gantry/data/jinja/meter.h"

namespace gantry::jinja {
namespace {

[[noreturn]] void refuse(const char* operation, const Value& one, const Value& other) {
  if (one.is_undefined() || other.is_undefined()) throw RenderError((one.is_undefined() ? one : other).why());
  throw RenderError(
      fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", operation, one.type_name(), other.type_name()));
}

[[noreturn]] void refuse_large() { throw RenderError("an integer of more than 38 digits"); }

Value checked(bool overflows, Integer value) {
  if (overflows) refuse_large();
  return Value::integer(value);
}

bool are_whole(const Value& one, const Value& other) { return one.is_int() && other.is_int(); }

void require_numbers(const char* operation, const Value& one, const Value& other) {
  if (!one.is_number() || !other.is_number()) refuse(operation, one, other);
}

void require_divisor(const Value& value, const char* fault) {
  if (value.number() == 0) throw RenderError(fault);
}

Value repeated_text(const Value& text, Integer count) {
  std::string made;
  if (count <= 0) return Value::text(made, text.is_safe());
  require_text_size(static_cast<std::size_t>(std::min<Integer>(count, 1 << 30)), text.bytes().size());
  if (!text.bytes().empty())
    for (Integer i = 0; i < count; ++i) made += text.bytes();
  return Value::text(std::move(made), text.is_safe());
}

Value repeated_items(const Value& sequence, Integer count) {
  Values made;
  if (count > 0 && !sequence.items().empty()) {
    require_list_size(static_cast<std::size_t>(std::min<Integer>(count, 1 << 30)), sequence.items().size());
    for (Integer i = 0; i < count; ++i) made.insert(made.end(), sequence.items().begin(), sequence.items().end());
  }
  return sequence.is_tuple() ? Value::tuple(std::move(made)) : Value::list(std::move(made));
}

double floor_quotient(double one, double other) {
  const double remainder = std::fmod(one, other);
  double quotient = (one - remainder) / other;
  if (remainder != 0 && (other < 0) != (remainder < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, one / other);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

double floor_remainder(double one, double other) {
  const double remainder = std::fmod(one, other);
  if (remainder == 0) return std::copysign(0.0, other);
  return (other < 0) != (remainder < 0) ? remainder + other : remainder;
}

Integer integer_power(Integer base, Integer exponent) {
  Integer made = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(made, base, &made)) refuse_large();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) refuse_large();
  }
  return made;
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string made;
  for (const char c : text) {
    if (c == '&')
      made += "&amp;";
    else if (c == '<')
      made += "&lt;";
    else if (c == '>')
      made += "&gt;";
    else if (c == '\'')
      made += "&#39;";
    else if (c == '"')
      made += "&#34;";
    else
      made += c;
  }
  return made;
}

Value add(const Value& one, const Value& other) {
  if (one.is_text() && other.is_text()) {
    const bool is_safe = one.is_safe() || other.is_safe();
    const auto part = [&](const Value& each) {
      return is_safe && !each.is_safe() ? escaped(each.bytes()) : each.bytes();
    };
    require_text_size(1, one.bytes().size() + other.bytes().size());
    return Value::text(part(one) + part(other), is_safe);
  }
  if (one.is_sequence() && other.is_sequence() && one.is_tuple() == other.is_tuple()) {
    require_list_size(1, one.items().size() + other.items().size());
    Values items = one.items();
    items.insert(items.end(), other.items().begin(), other.items().end());
    return one.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
  }
  if (one.is_text() && !other.is_undefined())
    throw RenderError(fmt::format("can only concatenate str (not \"{}\") to str", other.type_name()));
  require_numbers("+", one, other);
  if (are_whole(one, other)) {
    Integer sum = 0;
    const bool overflows = __builtin_add_overflow(one.whole(), other.whole(), &sum);
    return checked(overflows, sum);
  }
  return Value::real(one.number() + other.number());
}

Value subtract(const Value& one, const Value& other) {
  require_numbers("-", one, other);
  if (are_whole(one, other)) {
    Integer made = 0;
    const bool overflows = __builtin_sub_overflow(one.whole(), other.whole(), &made);
    return checked(overflows, made);
  }
  return Value::real(one.number() - other.number());
}

Value multiply(const Value& one, const Value& other) {
  if (one.is_text() && other.is_int()) return repeated_text(one, other.whole());
  if (one.is_int() && other.is_text()) return repeated_text(other, one.whole());
  if (one.is_sequence() && other.is_int()) return repeated_items(one, other.whole());
  if (one.is_int() && other.is_sequence()) return repeated_items(other, one.whole());
  require_numbers("*", one, other);
  if (are_whole(one, other)) {
    Integer made = 0;
    const bool overflows = __builtin_mul_overflow(one.whole(), other.whole(), &made);
    return checked(overflows, made);
  }
  return Value::real(one.number() * other.number());
}

Value divide(const Value& one, const Value& other) {
  require_numbers("/", one, other);
  require_divisor(other, "division by zero");
  if (!are_whole(one, other)) return Value::real(one.number() / other.number());
  // Integers above 2^53 would be rounded before the division.
  return Value::real(
      static_cast<double>(static_cast<long double>(one.whole()) / static_cast<long double>(other.whole())));
}

Value floor_divide(const Value& one, const Value& other) {
  require_numbers("//", one, other);
  require_divisor(other, "integer division or modulo by zero");
  if (!are_whole(one, other)) return Value::real(floor_quotient(one.number(), other.number()));
  const Integer quotient = one.whole() / other.whole();
  const bool rounds_up = one.whole() % other.whole() != 0 && (one.whole() < 0) != (other.whole() < 0);
  return Value::integer(quotient - (rounds_up ? 1 : 0));
}

Value modulo(const Value& one, const Value& other) {
  if (one.is_text()) return Value::text(percent_format(one.bytes(), other), one.is_safe());
  require_numbers("%", one, other);
  require_divisor(other, "integer division or modulo by zero");
  if (!are_whole(one, other)) return Value::real(floor_remainder(one.number(), other.number()));
  const Integer remainder = one.whole() % other.whole();
  return Value::integer(remainder != 0 && (remainder < 0) != (other.whole() < 0) ? remainder + other.whole()
                                                                                 : remainder);
}

Value power(const Value& one, const Value& other) {
  require_numbers("** or pow()", one, other);
  if (are_whole(one, other) && other.whole() >= 0) {
    const Integer base = one.whole();
    if (base == 0 || base == 1) return Value::integer(other.whole() == 0 ? 1 : base);
    if (base == -1) return Value::integer(other.whole() % 2 == 0 ? 1 : -1);
    return Value::integer(integer_power(base, other.whole()));
  }
  if (one.number() == 0 && other.number() < 0) throw RenderError("0.0 cannot be raised to a negative power");
  const double made = std::pow(one.number(), other.number());
  if (std::isnan(made) && !std::isnan(one.number()) && !std::isnan(other.number()))
    throw RenderError("a complex number");
  if (std::isinf(made) && !std::isinf(one.number()) && !std::isinf(other.number()))
    throw RenderError("a number that is too large");
  return Value::real(made);
}

Value negated(const Value& value) {
  if (value.is_int()) return Value::integer(-value.whole());
  if (value.is_real()) return Value::real(-value.number());
  if (value.is_undefined()) throw RenderError(value.why());
  throw RenderError(fmt::format("bad operand type for unary -: '{}'", value.type_name()));
}

Value positive(const Value& value) {
  if (value.is_int()) return Value::integer(value.whole());
  if (value.is_real()) return value;
  if (value.is_undefined()) throw RenderError(value.why());
  throw RenderError(fmt::format("bad operand type for unary +: '{}'", value.type_name()));
}

Value absolute(const Value& value) {
  if (value.is_int()) return Value::integer(value.whole() < 0 ? -value.whole() : value.whole());
  if (value.is_real()) return Value::real(std::abs(value.number()));
  throw RenderError(fmt::format("bad operand type for abs(): '{}'", value.type_name()));
}

}  // namespace gantry::jinja
