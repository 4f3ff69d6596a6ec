// UTF-8 that may be invalid. All functions that decode its bytes are here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gantry {

// The beginning of a text: a character, or invalid bytes.
struct Utf8Piece {
  std::size_t length = 1;             // length in bytes
  std::optional<char32_t> character;  // empty: the bytes are an incomplete character, or cannot begin one
};

// The first character of a non-empty text. A character is not a surrogate, not above U+10FFFF, and not written in more
// bytes than necessary (RFC 3629). Without a character, the piece is the longest prefix that could begin one, or a
// single byte.
Utf8Piece first_utf8(std::string_view text);

// Number of bytes at the start of `text` that are complete, valid UTF-8.
std::size_t valid_utf8_prefix(std::string_view text);

// Replaces each invalid piece by U+FFFD as recommended by Unicode (3.9, "Substitution of Maximal Subparts"), like
// Python's errors="replace". `replaced`, if given, receives the number of replacements.
std::string valid_utf8(std::string_view text, std::int64_t* replaced = nullptr);

// True for a continuation byte, with which no character begins.
inline bool continues_utf8(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Number of bytes of the character that begins with `first`, in valid UTF-8.
inline std::size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The start of the character that contains the byte `at`, or `at` at the end of the text. `at` is at most the text's
// size.
std::size_t utf8_start(std::string_view text, std::size_t at);

// Number of characters of valid UTF-8.
std::size_t utf8_count(std::string_view text);

void append_utf8(std::string& text, char32_t character);

std::u16string utf16_of(std::string_view text);  // invalid bytes become U+FFFD
std::string utf8_of(std::u16string_view text);   // complete characters

}  // namespace gantry
