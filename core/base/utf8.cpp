#include "gantry/core/base/utf8.h"

#include <algorithm>
#include <cstring>

namespace gantry {
namespace {

constexpr char32_t kReplacement = 0xFFFD;  // replaces bytes that are not UTF-8
constexpr char32_t kFirstPair = 0x10000;   // from here on, a character is two units of UTF-16
constexpr char32_t kHighSurrogate = 0xD800, kLowSurrogate = 0xDC00;

// The range of the second byte is narrower if the first byte could begin an overlong form, a surrogate or a code above
// U+10FFFF.
struct Form {
  std::size_t length = 0;  // 0: no character begins with this byte
  unsigned char low = 0x80, high = 0xBF;
};

Form form_of(unsigned char first) {
  if (first < 0x80) return {1};
  if (first < 0xC2 || first > 0xF4) return {};
  if (first < 0xE0) return {2};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first < 0xF0) return {3};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {4};
}

std::size_t ascii_prefix(std::string_view text) {
  std::size_t at = 0;
  for (std::uint64_t word; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if (word & 0x8080808080808080u) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

Utf8Piece first_utf8(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {1, first};
  const Form form = form_of(first);
  char32_t character = first & (0x7Fu >> form.length);
  std::size_t length = 1;
  for (; length < form.length && length < text.size(); ++length) {
    const auto byte = static_cast<unsigned char>(text[length]);
    const bool is_second = length == 1;
    if (byte < (is_second ? form.low : 0x80) || byte > (is_second ? form.high : 0xBF)) break;
    character = character << 6 | (byte & 0x3Fu);
  }
  if (length != form.length) return {length, std::nullopt};
  return {length, character};
}

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = ascii_prefix(text);
  while (at < text.size()) {
    const auto [length, character] = first_utf8(text.substr(at));
    if (!character) break;
    at += length;
    at += ascii_prefix(text.substr(at));
  }
  return at;
}

std::string valid_utf8(std::string_view text, std::int64_t* replaced) {
  std::string valid;
  std::int64_t count = 0;
  while (!text.empty()) {
    const std::size_t good = valid_utf8_prefix(text);
    valid += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) break;
    text.remove_prefix(first_utf8(text).length);
    append_utf8(valid, kReplacement);
    ++count;
  }
  if (replaced) *replaced = count;
  return valid;
}

std::size_t utf8_start(std::string_view text, std::size_t at) {
  while (at > 0 && at < text.size() && continues_utf8(text[at])) --at;
  return at;
}

std::size_t utf8_count(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !continues_utf8(byte); }));
}

void append_utf8(std::string& text, char32_t character) {
  const auto continuing = [&](int shift) { return static_cast<char>(0x80 | (character >> shift & 0x3F)); };
  if (character < 0x80) {
    text += static_cast<char>(character);
  } else if (character < 0x800) {
    text += {static_cast<char>(0xC0 | character >> 6), continuing(0)};
  } else if (character < 0x10000) {
    text += {static_cast<char>(0xE0 | character >> 12), continuing(6), continuing(0)};
  } else {
    text += {static_cast<char>(0xF0 | character >> 18), continuing(12), continuing(6), continuing(0)};
  }
}

std::u16string utf16_of(std::string_view text) {
  std::u16string units;
  units.reserve(text.size());
  while (!text.empty()) {
    const auto [length, found] = first_utf8(text);
    const char32_t character = found.value_or(kReplacement);
    if (character >= kFirstPair) {
      units += static_cast<char16_t>(kHighSurrogate + ((character - kFirstPair) >> 10));
      units += static_cast<char16_t>(kLowSurrogate + (character & 0x3FF));
    } else {
      units += static_cast<char16_t>(character);
    }
    text.remove_prefix(length);
  }
  return units;
}

std::string utf8_of(std::u16string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_pair = (text[i] & 0xFC00) == kHighSurrogate && i + 1 < text.size();
    append_utf8(bytes, is_pair ? kFirstPair + ((text[i] & 0x3FFu) << 10 | (text[i + 1] & 0x3FFu)) : text[i]);
    if (is_pair) ++i;
  }
  return bytes;
}

}  // namespace gantry
