// The element types of the safetensors format.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gantry {

struct StoredType {
  std::string_view name;      // in files: "BF16"
  std::string_view readable;  // in Gantry: "bfloat16"
  int bits;                   // bits per element
};

// Returns null for a name that the format does not have.
const StoredType* find_stored_type(std::string_view name);
const StoredType* find_readable_type(std::string_view readable);

// The number of bytes of a tensor. None if it overflows or if the elements do not fill complete bytes.
std::optional<std::uint64_t> stored_bytes(const StoredType& type, std::span<const std::int64_t> shape);

// The elements as numbers, double or long double; none for complex and sub-byte types. With double, integers
// beyond 2^53 lose digits; with long double no integer does.
template <class Number = double>
std::optional<std::vector<Number>> stored_values(const StoredType& type, std::span<const unsigned char> bytes);

}  // namespace gantry
