// UTF-8 text as Python's str: code points, their classes, and case.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gantry::jinja {

// Bytes that are not UTF-8 count as a code point each.
std::size_t count_code_points(std::string_view text);
std::u32string code_points(std::string_view text);
// The bytes of each code point, in order.
std::vector<std::string_view> characters(std::string_view text);
std::string utf8(std::u32string_view points);
void append_utf8(char32_t point, std::string& text);
bool is_utf8(std::string_view text);
// The byte at which code point `index` begins; the end for an index beyond it.
std::size_t byte_of(std::string_view text, std::size_t index);

bool is_space(char32_t point);           // as str.isspace()
bool is_line_break(char32_t point);      // as str.splitlines()
bool is_printable(char32_t point);       // as str.isprintable()
bool is_word_character(char32_t point);  // \w of Python's regular expressions
bool starts_identifier(char32_t point);
bool continues_identifier(char32_t point);

std::string upper(const std::string& text);
std::string lower(const std::string& text);
std::string title(const std::string& text);       // str.title()
std::string capitalize(const std::string& text);  // str.capitalize()
std::string swap_case(const std::string& text);
std::string fold_case(const std::string& text);

// str.isalpha() and so on: `name` without "is". The empty text is only ascii and printable.
bool has_class(const std::string& text, std::string_view name);

// Remove `characters` from one end of the text; white space if `characters` is empty.
std::string_view without_left(std::string_view text, const std::u32string& characters);
std::string_view without_right(std::string_view text, const std::u32string& characters);

}  // namespace gantry::jinja
