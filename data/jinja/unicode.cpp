#include "gantry/data/jinja/unicode.h"

#include <algorithm>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

namespace gantry::jinja {
namespace {

constexpr char32_t kInvalid = 0xDC00;  // plus the byte: Python's surrogateescape

// Returns the code point at `at`, and moves `at` to the next one.
char32_t next_point(std::string_view text, std::size_t& at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return ++at, first;
  UChar32 point = 0;
  auto place = static_cast<std::int64_t>(at);
  const auto size = static_cast<std::int64_t>(text.size());
  U8_NEXT(text.data(), place, size, point);
  if (point < 0) return ++at, kInvalid + first;
  at = static_cast<std::size_t>(place);
  return static_cast<char32_t>(point);
}

char32_t last_point(std::string_view text, std::size_t& begin) {
  begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  std::size_t at = begin;
  const char32_t point = next_point(text, at);
  if (at == text.size()) return point;
  begin = text.size() - 1;
  return kInvalid + static_cast<unsigned char>(text.back());
}

bool strips(char32_t point, const std::u32string& characters) {
  return characters.empty() ? is_space(point) : characters.find(point) != std::u32string::npos;
}

}  // namespace

std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) next_point(text, at);
  return count;
}

std::u32string code_points(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) points.push_back(next_point(text, at));
  return points;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> each;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    next_point(text, at);
    each.push_back(text.substr(begin, at - begin));
  }
  return each;
}

void append_utf8(char32_t point, std::string& text) {
  if (point >= kInvalid + 0x80 && point <= kInvalid + 0xFF) {
    text += static_cast<char>(point - kInvalid);
    return;
  }
  char bytes[U8_MAX_LENGTH];
  std::size_t length = 0;
  U8_APPEND_UNSAFE(bytes, length, static_cast<UChar32>(point));
  text.append(bytes, length);
}

std::string utf8(std::u32string_view points) {
  std::string text;
  text.reserve(points.size());
  for (const char32_t point : points) append_utf8(point, text);
  return text;
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();)
    if (const char32_t point = next_point(text, at); point >= kInvalid + 0x80 && point <= kInvalid + 0xFF) return false;
  return true;
}

std::size_t byte_of(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) next_point(text, at);
  return at;
}

bool is_space(char32_t point) {
  if (point < 0x80) return point == ' ' || (point >= 9 && point <= 13) || (point >= 0x1C && point <= 0x1F);
  return point == 0x85 || u_charType(static_cast<UChar32>(point)) == U_SPACE_SEPARATOR || point == 0x2028 ||
         point == 0x2029;
}

bool is_line_break(char32_t point) {
  return (point >= 10 && point <= 13) || (point >= 0x1C && point <= 0x1E) || point == 0x85 || point == 0x2028 ||
         point == 0x2029;
}

bool is_printable(char32_t point) {
  if (point == ' ') return true;
  const auto classes = U_GET_GC_MASK(static_cast<UChar32>(point));
  return (classes & (U_GC_C_MASK | U_GC_Z_MASK)) == 0;
}

bool is_word_character(char32_t point) {
  return point == '_' || (U_GET_GC_MASK(static_cast<UChar32>(point)) & (U_GC_L_MASK | U_GC_N_MASK)) != 0;
}

bool starts_identifier(char32_t point) {
  return point == '_' || u_hasBinaryProperty(static_cast<UChar32>(point), UCHAR_XID_START);
}

bool continues_identifier(char32_t point) {
  return u_hasBinaryProperty(static_cast<UChar32>(point), UCHAR_XID_CONTINUE);
}

std::string_view without_left(std::string_view text, const std::u32string& characters) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t next = at;
    if (!strips(next_point(text, next), characters)) break;
    at = next;
  }
  return text.substr(at);
}

std::string_view without_right(std::string_view text, const std::u32string& characters) {
  while (!text.empty()) {
    std::size_t begin = 0;
    if (!strips(last_point(text, begin), characters)) break;
    text = text.substr(0, begin);
  }
  return text;
}

}  // namespace gantry::jinja
