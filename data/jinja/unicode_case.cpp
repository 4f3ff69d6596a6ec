#include <algorithm>
#include <stdexcept>
#include <unicode/uchar.h>
#include <unicode/ustring.h>

#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

using Utf16 = std::basic_string<UChar>;

Utf16 utf16(std::string_view text) {
  Utf16 units(text.size() + 1, 0);
  std::int32_t length = 0;
  UErrorCode error = U_ZERO_ERROR;
  u_strFromUTF8WithSub(units.data(), static_cast<std::int32_t>(units.size()), &length, text.data(),
                       static_cast<std::int32_t>(text.size()), 0xFFFD, nullptr, &error);
  units.resize(static_cast<std::size_t>(length));
  return units;
}

std::string from_utf16(const Utf16& units) {
  std::string text(3 * units.size() + 1, '\0');
  std::int32_t length = 0;
  UErrorCode error = U_ZERO_ERROR;
  u_strToUTF8WithSub(text.data(), static_cast<std::int32_t>(text.size()), &length, units.data(),
                     static_cast<std::int32_t>(units.size()), 0xFFFD, nullptr, &error);
  text.resize(static_cast<std::size_t>(length));
  return text;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// `map` is one of ICU's, of (destination, room, source, length, error).
template <class Map>
std::string mapped(const std::string& text, const Map& map) {
  const Utf16 source = utf16(text);
  Utf16 made(3 * source.size() + 8, 0);
  UErrorCode error = U_ZERO_ERROR;
  const auto length = map(made.data(), static_cast<std::int32_t>(made.size()), source.data(),
                          static_cast<std::int32_t>(source.size()), &error);
  if (U_FAILURE(error)) throw std::runtime_error(u_errorName(error));
  made.resize(static_cast<std::size_t>(length));
  return from_utf16(made);
}

// One code point in title case, which may be several.
std::string titled(char32_t point) {
  std::string text;
  append_utf8(point, text);
  if (point < 0x80) return upper(text);
  return mapped(text, [](UChar* to, std::int32_t room, const UChar* from, std::int32_t length, UErrorCode* error) {
    return u_strToTitle(to, room, from, length, nullptr, "", error);
  });
}

bool is_cased(char32_t point) {
  const auto each = static_cast<UChar32>(point);
  return u_hasBinaryProperty(each, UCHAR_LOWERCASE) || u_hasBinaryProperty(each, UCHAR_UPPERCASE) ||
         u_charType(each) == U_TITLECASE_LETTER;
}

bool is_upper(char32_t point) { return u_hasBinaryProperty(static_cast<UChar32>(point), UCHAR_UPPERCASE); }
bool is_lower(char32_t point) { return u_hasBinaryProperty(static_cast<UChar32>(point), UCHAR_LOWERCASE); }

// Returns the code point at `index` in lower case. The last sigma of a word has a separate form, as in
// lower().
std::string lowered(const std::u32string& points, std::size_t index) {
  constexpr char32_t kSigma = 0x3A3, kLastSigma = 0x3C2;
  std::string text;
  append_utf8(points[index], text);
  if (points[index] != kSigma) return lower(text);
  const auto is_ignored = [&](std::size_t i) {
    return u_hasBinaryProperty(static_cast<UChar32>(points[i]), UCHAR_CASE_IGNORABLE) != 0;
  };
  std::size_t before = index, behind = index + 1;
  while (before > 0 && is_ignored(before - 1)) --before;
  while (behind < points.size() && is_ignored(behind)) ++behind;
  const bool is_last =
      before > 0 && is_cased(points[before - 1]) && (behind == points.size() || !is_cased(points[behind]));
  if (!is_last) return lower(text);
  text.clear();
  append_utf8(kLastSigma, text);
  return text;
}

bool is_letter(char32_t point) { return (U_GET_GC_MASK(static_cast<UChar32>(point)) & U_GC_L_MASK) != 0; }

bool has_numeric_type(char32_t point, int least) {
  const auto type = u_getIntPropertyValue(static_cast<UChar32>(point), UCHAR_NUMERIC_TYPE);
  if (type == U_NT_NONE) return false;
  return type == U_NT_DECIMAL || (least <= 1 && type == U_NT_DIGIT) || least == 0;
}

// At least one cased letter, and none of the other case.
bool all_cased(const std::u32string& points, bool (*is_other)(char32_t)) {
  return std::ranges::any_of(points, is_cased) && std::ranges::none_of(points, [&](char32_t point) {
           return is_other(point) || u_charType(static_cast<UChar32>(point)) == U_TITLECASE_LETTER;
         });
}

bool is_title(const std::u32string& points) {
  bool after_cased = false, has_cased = false;
  for (const char32_t point : points) {
    const bool is_head = is_upper(point) || u_charType(static_cast<UChar32>(point)) == U_TITLECASE_LETTER;
    if (is_head ? after_cased : is_lower(point) && !after_cased) return false;
    after_cased = is_head || is_lower(point);
    has_cased = has_cased || after_cased;
  }
  return has_cased;
}

}  // namespace

std::string upper(const std::string& text) {
  std::string made = text;
  if (is_ascii(text)) {
    std::ranges::transform(made, made.begin(), [](char c) { return c >= 'a' && c <= 'z' ? char(c - 32) : c; });
    return made;
  }
  return mapped(text, [](UChar* to, std::int32_t room, const UChar* from, std::int32_t length, UErrorCode* error) {
    return u_strToUpper(to, room, from, length, "", error);
  });
}

std::string lower(const std::string& text) {
  std::string made = text;
  if (is_ascii(text)) {
    std::ranges::transform(made, made.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
    return made;
  }
  return mapped(text, [](UChar* to, std::int32_t room, const UChar* from, std::int32_t length, UErrorCode* error) {
    return u_strToLower(to, room, from, length, "", error);
  });
}

std::string fold_case(const std::string& text) {
  return mapped(text, [](UChar* to, std::int32_t room, const UChar* from, std::int32_t length, UErrorCode* error) {
    return u_strFoldCase(to, room, from, length, U_FOLD_CASE_DEFAULT, error);
  });
}

std::string capitalize(const std::string& text) {
  const std::u32string points = code_points(text);
  std::string made;
  for (std::size_t i = 0; i < points.size(); ++i) made += i == 0 ? titled(points[0]) : lowered(points, i);
  return made;
}

std::string title(const std::string& text) {
  const std::u32string points = code_points(text);
  std::string made;
  for (std::size_t i = 0; i < points.size(); ++i)
    made += i > 0 && is_cased(points[i - 1]) ? lowered(points, i) : titled(points[i]);
  return made;
}

std::string swap_case(const std::string& text) {
  const std::u32string points = code_points(text);
  std::string made;
  for (std::size_t i = 0; i < points.size(); ++i) {
    std::string each;
    append_utf8(points[i], each);
    made += is_upper(points[i]) ? lowered(points, i) : is_lower(points[i]) ? upper(each) : each;
  }
  return made;
}

bool has_class(const std::string& text, std::string_view name) {
  const std::u32string points = code_points(text);
  const auto all = [&](const auto& test) { return !points.empty() && std::ranges::all_of(points, test); };
  if (name == "ascii") return is_ascii(text);
  if (name == "printable") return std::ranges::all_of(points, is_printable);
  if (name == "alpha") return all(is_letter);
  if (name == "alnum") return all([](char32_t point) { return is_letter(point) || has_numeric_type(point, 0); });
  if (name == "decimal") return all([](char32_t point) { return has_numeric_type(point, 2); });
  if (name == "digit") return all([](char32_t point) { return has_numeric_type(point, 1); });
  if (name == "numeric") return all([](char32_t point) { return has_numeric_type(point, 0); });
  if (name == "space") return all(is_space);
  if (name == "lower") return all_cased(points, is_upper);
  if (name == "upper") return all_cased(points, is_lower);
  if (name == "title") return is_title(points);
  return !points.empty() && starts_identifier(points[0]) &&
         std::all_of(points.begin() + 1, points.end(), continues_identifier);
}

}  // namespace gantry::jinja
