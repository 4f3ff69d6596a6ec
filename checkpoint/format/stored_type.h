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
  std::string_view readable;  // here: "bfloat16"
  int bits;                   // of one element
};

// Null for a name that the format does not have.
const StoredType* find_stored_type(std::string_view name);
const StoredType* find_readable_type(std::string_view readable);

// The bytes of a tensor; nothing where they overflow, or where the elements do not fill whole bytes.
std::optional<std::uint64_t> stored_bytes(const StoredType& type, std::span<const std::int64_t> shape);

// Elements as numbers, double or long double; complex and sub-byte types give nothing. As double, whole numbers beyond
// 2^53 lose digits; as long double none does.
template <class Number = double>
std::optional<std::vector<Number>> stored_values(const StoredType& type, std::span<const unsigned char> bytes);

}  // namespace gantry
