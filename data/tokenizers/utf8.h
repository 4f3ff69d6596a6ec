// UTF-8 that may be broken.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gantry {

// Bytes from the start of `text` that are whole, well-formed UTF-8.
std::size_t valid_utf8_prefix(std::string_view text);

// Each longest piece that begins a character and does not end it, and each byte that can't begin one, becomes U+FFFD:
// the practice that Unicode recommends (3.9, "Substitution of Maximal Subparts"), Python's errors="replace".
// `replaced`, if given, gets how many there were.
std::string valid_utf8(std::string_view text, std::int64_t* replaced = nullptr);

// Bytes of the character that begins with `first`, in valid UTF-8.
inline std::size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace gantry
