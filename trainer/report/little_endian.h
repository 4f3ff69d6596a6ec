// Numbers as little-endian bytes, for binary formats.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gantry {

template <class Number>
std::string little_endian(Number value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(Number); ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

// The number in the first bytes, of which there must be enough.
template <class Number>
Number number_from(std::string_view bytes) {
  Number value = 0;
  for (std::size_t i = sizeof(Number); i > 0; --i)
    value = static_cast<Number>(static_cast<Number>(value << 8) | static_cast<unsigned char>(bytes[i - 1]));
  return value;
}

}  // namespace gantry
