// UTF-8 that may be broken. All that takes its bytes apart is here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gantry {

// What a text begins with: a character, or bytes that are none.
struct Utf8Piece {
  std::size_t length = 1;             // bytes
  std::optional<char32_t> character;  // none: the bytes begin a character and do not end it, or can't begin one
};

// The first character of a text that is not empty. No character is a surrogate, past U+10FFFF, or written in more bytes
// than it needs (RFC 3629). Where there is none, the piece is the longest that begins one, or a single byte.
Utf8Piece first_utf8(std::string_view text);

// Bytes from the start of `text` that are whole, well-formed UTF-8.
std::size_t valid_utf8_prefix(std::string_view text);

// Each piece that is no character becomes U+FFFD: the practice that Unicode recommends (3.9, "Substitution of Maximal
// Subparts"), Python's errors="replace". `replaced`, if given, gets how many there were.
std::string valid_utf8(std::string_view text, std::int64_t* replaced = nullptr);

// True for a byte within a character: none begins with it.
inline bool continues_utf8(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Bytes of the character that begins with `first`, in valid UTF-8.
inline std::size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Where the character begins that has the byte `at`; `at` itself at the text's end. `at` is at most the text's size.
std::size_t utf8_start(std::string_view text, std::size_t at);

// Characters of valid UTF-8.
std::size_t utf8_count(std::string_view text);

void append_utf8(std::string& text, char32_t character);

std::u16string utf16_of(std::string_view text);  // what is no UTF-8 becomes U+FFFD
std::string utf8_of(std::u16string_view text);   // of whole characters

}  // namespace gantry
