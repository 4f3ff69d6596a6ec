#include "gantry/checkpoint/format/stored_type.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace gantry {
namespace {

constexpr StoredType kTypes[] = {{"F64", "float64", 64},
                                 {"F32", "float32", 32},
                                 {"F16", "float16", 16},
                                 {"BF16", "bfloat16", 16},
                                 {"F8_E4M3", "float8_e4m3fn", 8},
                                 {"F8_E5M2", "float8_e5m2", 8},
                                 {"F8_E8M0", "float8_e8m0fnu", 8},
                                 {"F8_E4M3FNUZ", "float8_e4m3fnuz", 8},
                                 {"F8_E5M2FNUZ", "float8_e5m2fnuz", 8},
                                 {"F6_E2M3", "float6_e2m3", 6},
                                 {"F6_E3M2", "float6_e3m2", 6},
                                 {"F4", "float4", 4},
                                 {"C64", "complex64", 64},
                                 {"I64", "int64", 64},
                                 {"I32", "int32", 32},
                                 {"I16", "int16", 16},
                                 {"I8", "int8", 8},
                                 {"U64", "uint64", 64},
                                 {"U32", "uint32", 32},
                                 {"U16", "uint16", 16},
                                 {"U8", "uint8", 8},
                                 {"BOOL", "bool", 8}};

// The bit layout of a small float. `finite`: the all-ones exponent is an ordinary one, and there are no
// infinities.
struct FloatLayout {
  int exponent_bits, mantissa_bits, bias;
  bool finite = false;
  bool negative_zero_is_nan = false;  // the only NaN of the "uz" types
};

double decode(std::uint32_t bits, const FloatLayout& layout) {
  const int exponent_mask = (1 << layout.exponent_bits) - 1, mantissa_mask = (1 << layout.mantissa_bits) - 1;
  const int mantissa = static_cast<int>(bits) & mantissa_mask;
  const int exponent = static_cast<int>(bits >> layout.mantissa_bits) & exponent_mask;
  const bool negative = (bits >> (layout.mantissa_bits + layout.exponent_bits)) & 1;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (layout.negative_zero_is_nan && negative && exponent == 0 && mantissa == 0) return kNan;
  if (layout.finite && !layout.negative_zero_is_nan && exponent == exponent_mask && mantissa == mantissa_mask)
    return kNan;
  double value = 0;
  if (!layout.finite && exponent == exponent_mask)
    value = mantissa ? kNan : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    value = std::ldexp(mantissa, 1 - layout.bias - layout.mantissa_bits);
  else
    value = std::ldexp(mantissa | (1 << layout.mantissa_bits), exponent - layout.bias - layout.mantissa_bits);
  return negative ? -value : value;
}

template <class Number, class Element, class Convert>
std::vector<Number> converted(std::span<const unsigned char> bytes, Convert convert) {
  std::vector<Number> values(bytes.size() / sizeof(Element));
  for (std::size_t i = 0; i < values.size(); ++i) {
    Element element;
    std::memcpy(&element, bytes.data() + i * sizeof(Element), sizeof(Element));
    values[i] = convert(element);
  }
  return values;
}

template <class Number, class Element>
std::vector<Number> plain(std::span<const unsigned char> bytes) {
  return converted<Number, Element>(bytes, [](Element element) { return static_cast<Number>(element); });
}

template <class Number, class Bits>
std::vector<Number> small_floats(std::span<const unsigned char> bytes, const FloatLayout& layout) {
  return converted<Number, Bits>(bytes, [&](Bits bits) { return static_cast<Number>(decode(bits, layout)); });
}

}  // namespace

const StoredType* find_stored_type(std::string_view name) {
  for (const auto& type : kTypes)
    if (type.name == name) return &type;
  return nullptr;
}

const StoredType* find_readable_type(std::string_view readable) {
  for (const auto& type : kTypes)
    if (type.readable == readable) return &type;
  return nullptr;
}

std::optional<std::uint64_t> stored_bytes(const StoredType& type, std::span<const std::int64_t> shape) {
  std::uint64_t bits = static_cast<std::uint64_t>(type.bits);
  for (const std::int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(bits, static_cast<std::uint64_t>(extent), &bits)) return std::nullopt;
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

template <class Number>
std::optional<std::vector<Number>> stored_values(const StoredType& type, std::span<const unsigned char> bytes) {
  const std::string_view name = type.name;
  if (name == "F64") return plain<Number, double>(bytes);
  if (name == "F32") return plain<Number, float>(bytes);
  if (name == "F16") return small_floats<Number, std::uint16_t>(bytes, {5, 10, 15});
  if (name == "BF16") return small_floats<Number, std::uint16_t>(bytes, {8, 7, 127});
  if (name == "F8_E4M3") return small_floats<Number, std::uint8_t>(bytes, {4, 3, 7, true});
  if (name == "F8_E5M2") return small_floats<Number, std::uint8_t>(bytes, {5, 2, 15});
  if (name == "F8_E4M3FNUZ") return small_floats<Number, std::uint8_t>(bytes, {4, 3, 8, true, true});
  if (name == "F8_E5M2FNUZ") return small_floats<Number, std::uint8_t>(bytes, {5, 2, 16, true, true});
  if (name == "F8_E8M0")
    return converted<Number, std::uint8_t>(bytes, [](std::uint8_t exponent) {
      return exponent == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, exponent - 127);
    });
  if (name == "I64") return plain<Number, std::int64_t>(bytes);
  if (name == "I32") return plain<Number, std::int32_t>(bytes);
  if (name == "I16") return plain<Number, std::int16_t>(bytes);
  if (name == "I8") return plain<Number, std::int8_t>(bytes);
  if (name == "U64") return plain<Number, std::uint64_t>(bytes);
  if (name == "U32") return plain<Number, std::uint32_t>(bytes);
  if (name == "U16") return plain<Number, std::uint16_t>(bytes);
  if (name == "U8" || name == "BOOL") return plain<Number, std::uint8_t>(bytes);
  return std::nullopt;
}

template std::optional<std::vector<double>> stored_values(const StoredType&, std::span<const unsigned char>);
template std::optional<std::vector<long double>> stored_values(const StoredType&, std::span<const unsigned char>);

}  // namespace gantry
