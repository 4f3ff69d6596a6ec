// Classes of characters in Unicode 16, the version of Hugging Face's tokenizers. ICU and Oniguruma may be older: the
// characters that Unicode 15 and 16 added are in a table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gantry {

// The general category as a bit of ICU's masks (U_GC_LU_MASK and so on).
std::uint32_t category_mask(char32_t character);

bool is_white_space(char32_t character);
bool is_numeric(char32_t character);         // Nd, Nl and No
bool is_word_character(char32_t character);  // letters, marks, decimal digits, connectors such as '_', and joiners
bool is_combining_mark(char32_t character);  // Mn, Mc and Me; none that Unicode 10 lacks

int unicode_age(char32_t character);  // the major version of Unicode that added the character

// The ranges that Unicode 15 and 16 added to a class of regular expressions ("L", "Lu", "Han", "w", "d"), in the form
// \x{1c89}-\x{1c8a}. Empty for other classes.
std::string later_ranges(std::string_view name);

}  // namespace gantry
