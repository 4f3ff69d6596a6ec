#include "gantry/data/tokenizers/characters.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <unicode/uchar.h>

namespace gantry {
namespace {

struct LaterCharacters {
  char32_t first, last;
  std::string_view category;
};

// Characters that Unicode 15.0, 15.1 and 16.0 added to 14.0.
constexpr LaterCharacters kLater[] = {
    // clang-format off
    {0x897, 0x897, "Mn"}, {0xCF3, 0xCF3, "Mc"}, {0xECE, 0xECE, "Mn"}, {0x1B4E, 0x1B4F, "Po"},
    {0x1B7F, 0x1B7F, "Po"}, {0x1C89, 0x1C89, "Lu"}, {0x1C8A, 0x1C8A, "Ll"}, {0x2427, 0x2429, "So"},
    {0x2FFC, 0x2FFF, "So"}, {0x31E4, 0x31E5, "So"}, {0x31EF, 0x31EF, "So"}, {0xA7CB, 0xA7CC, "Lu"},
    {0xA7CD, 0xA7CD, "Ll"}, {0xA7DA, 0xA7DA, "Lu"}, {0xA7DB, 0xA7DB, "Ll"}, {0xA7DC, 0xA7DC, "Lu"},
    {0x105C0, 0x105F3, "Lo"}, {0x10D40, 0x10D49, "Nd"}, {0x10D4A, 0x10D4D, "Lo"}, {0x10D4E, 0x10D4E, "Lm"},
    {0x10D4F, 0x10D4F, "Lo"}, {0x10D50, 0x10D65, "Lu"}, {0x10D69, 0x10D6D, "Mn"}, {0x10D6E, 0x10D6E, "Pd"},
    {0x10D6F, 0x10D6F, "Lm"}, {0x10D70, 0x10D85, "Ll"}, {0x10D8E, 0x10D8F, "Sm"}, {0x10EC2, 0x10EC4, "Lo"},
    {0x10EFC, 0x10EFF, "Mn"}, {0x1123F, 0x11240, "Lo"}, {0x11241, 0x11241, "Mn"}, {0x11380, 0x11389, "Lo"},
    {0x1138B, 0x1138B, "Lo"}, {0x1138E, 0x1138E, "Lo"}, {0x11390, 0x113B5, "Lo"}, {0x113B7, 0x113B7, "Lo"},
    {0x113B8, 0x113BA, "Mc"}, {0x113BB, 0x113C0, "Mn"}, {0x113C2, 0x113C2, "Mc"}, {0x113C5, 0x113C5, "Mc"},
    {0x113C7, 0x113CA, "Mc"}, {0x113CC, 0x113CD, "Mc"}, {0x113CE, 0x113CE, "Mn"}, {0x113CF, 0x113CF, "Mc"},
    {0x113D0, 0x113D0, "Mn"}, {0x113D1, 0x113D1, "Lo"}, {0x113D2, 0x113D2, "Mn"}, {0x113D3, 0x113D3, "Lo"},
    {0x113D4, 0x113D5, "Po"}, {0x113D7, 0x113D8, "Po"}, {0x113E1, 0x113E2, "Mn"}, {0x116D0, 0x116E3, "Nd"},
    {0x1171E, 0x1171E, "Mc"}, {0x11B00, 0x11B09, "Po"}, {0x11BC0, 0x11BE0, "Lo"}, {0x11BE1, 0x11BE1, "Po"},
    {0x11BF0, 0x11BF9, "Nd"}, {0x11F00, 0x11F01, "Mn"}, {0x11F02, 0x11F02, "Lo"}, {0x11F03, 0x11F03, "Mc"},
    {0x11F04, 0x11F10, "Lo"}, {0x11F12, 0x11F33, "Lo"}, {0x11F34, 0x11F35, "Mc"}, {0x11F36, 0x11F3A, "Mn"},
    {0x11F3E, 0x11F3F, "Mc"}, {0x11F40, 0x11F40, "Mn"}, {0x11F41, 0x11F41, "Mc"}, {0x11F42, 0x11F42, "Mn"},
    {0x11F43, 0x11F4F, "Po"}, {0x11F50, 0x11F59, "Nd"}, {0x11F5A, 0x11F5A, "Mn"}, {0x1342F, 0x1342F, "Lo"},
    {0x13439, 0x1343F, "Cf"}, {0x13440, 0x13440, "Mn"}, {0x13441, 0x13446, "Lo"}, {0x13447, 0x13455, "Mn"},
    {0x13460, 0x143FA, "Lo"}, {0x16100, 0x1611D, "Lo"}, {0x1611E, 0x16129, "Mn"}, {0x1612A, 0x1612C, "Mc"},
    {0x1612D, 0x1612F, "Mn"}, {0x16130, 0x16139, "Nd"}, {0x16D40, 0x16D42, "Lm"}, {0x16D43, 0x16D6A, "Lo"},
    {0x16D6B, 0x16D6C, "Lm"}, {0x16D6D, 0x16D6F, "Po"}, {0x16D70, 0x16D79, "Nd"}, {0x18CFF, 0x18CFF, "Lo"},
    {0x1B132, 0x1B132, "Lo"}, {0x1B155, 0x1B155, "Lo"}, {0x1CC00, 0x1CCEF, "So"}, {0x1CCF0, 0x1CCF9, "Nd"},
    {0x1CD00, 0x1CEB3, "So"}, {0x1D2C0, 0x1D2D3, "No"}, {0x1DF25, 0x1DF2A, "Ll"}, {0x1E030, 0x1E06D, "Lm"},
    {0x1E08F, 0x1E08F, "Mn"}, {0x1E4D0, 0x1E4EA, "Lo"}, {0x1E4EB, 0x1E4EB, "Lm"}, {0x1E4EC, 0x1E4EF, "Mn"},
    {0x1E4F0, 0x1E4F9, "Nd"}, {0x1E5D0, 0x1E5ED, "Lo"}, {0x1E5EE, 0x1E5EF, "Mn"}, {0x1E5F0, 0x1E5F0, "Lo"},
    {0x1E5F1, 0x1E5FA, "Nd"}, {0x1E5FF, 0x1E5FF, "Po"}, {0x1F6DC, 0x1F6DC, "So"}, {0x1F774, 0x1F776, "So"},
    {0x1F77B, 0x1F77F, "So"}, {0x1F7D9, 0x1F7D9, "So"}, {0x1F8B2, 0x1F8BB, "So"}, {0x1F8C0, 0x1F8C1, "So"},
    {0x1FA75, 0x1FA77, "So"}, {0x1FA87, 0x1FA89, "So"}, {0x1FA8F, 0x1FA8F, "So"}, {0x1FAAD, 0x1FAAF, "So"},
    {0x1FABB, 0x1FABF, "So"}, {0x1FAC6, 0x1FAC6, "So"}, {0x1FACE, 0x1FACF, "So"}, {0x1FADA, 0x1FADC, "So"},
    {0x1FADF, 0x1FADF, "So"}, {0x1FAE8, 0x1FAE9, "So"}, {0x1FAF7, 0x1FAF8, "So"}, {0x1FBCB, 0x1FBEF, "So"},
    {0x2B739, 0x2B739, "Lo"}, {0x2EBF0, 0x2EE5D, "Lo"}, {0x31350, 0x323AF, "Lo"},
    // clang-format on
};

// The additions to scripts.
constexpr LaterCharacters kLaterScripts[] = {
    {0x2B739, 0x2B739, "Han"},      {0x2EBF0, 0x2EE5D, "Han"},      {0x31350, 0x323AF, "Han"},
    {0x1B132, 0x1B132, "Hiragana"}, {0x1B155, 0x1B155, "Katakana"}, {0xA7CB, 0xA7CD, "Latin"},
    {0xA7DA, 0xA7DC, "Latin"},      {0x1DF25, 0x1DF2A, "Latin"},    {0x1C89, 0x1C8A, "Cyrillic"},
    {0x1E030, 0x1E06D, "Cyrillic"}, {0x1E08F, 0x1E08F, "Cyrillic"}, {0x897, 0x897, "Arabic"},
    {0x10EC2, 0x10EC4, "Arabic"},   {0x10EFC, 0x10EFF, "Arabic"},   {0x11B00, 0x11B09, "Devanagari"},
    {0xECE, 0xECE, "Lao"},          {0x116D0, 0x116E3, "Myanmar"},
};

constexpr std::pair<std::string_view, std::uint32_t> kMasks[] = {
    {"Lu", U_GC_LU_MASK}, {"Ll", U_GC_LL_MASK}, {"Lm", U_GC_LM_MASK}, {"Lo", U_GC_LO_MASK}, {"Mn", U_GC_MN_MASK},
    {"Mc", U_GC_MC_MASK}, {"Nd", U_GC_ND_MASK}, {"No", U_GC_NO_MASK}, {"Pd", U_GC_PD_MASK}, {"Po", U_GC_PO_MASK},
    {"Sm", U_GC_SM_MASK}, {"So", U_GC_SO_MASK}, {"Cf", U_GC_CF_MASK}};

constexpr std::uint32_t kWord = U_GC_L_MASK | U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;

std::uint32_t mask_of(std::string_view category) {
  return std::find_if(std::begin(kMasks), std::end(kMasks), [&](const auto& each) { return each.first == category; })
      ->second;
}

const LaterCharacters* find_later(char32_t character) {
  const auto* found = std::lower_bound(std::begin(kLater), std::end(kLater), character,
                                       [](const LaterCharacters& each, char32_t c) { return each.last < c; });
  return found != std::end(kLater) && found->first <= character ? found : nullptr;
}

bool is_in_class(std::string_view category, std::string_view name) {
  if (name == "w") return (mask_of(category) & kWord) != 0;
  if (name == "d") return category == "Nd";
  return category == name || (name.size() == 1 && category.starts_with(name));
}

}  // namespace

std::uint32_t category_mask(char32_t character) {
  if (character >= kLater[0].first)
    if (const auto* later = find_later(character)) return mask_of(later->category);
  return U_GET_GC_MASK(static_cast<UChar32>(character));
}

bool is_white_space(char32_t character) { return u_isUWhiteSpace(static_cast<UChar32>(character)) != 0; }

bool is_numeric(char32_t character) { return (category_mask(character) & U_GC_N_MASK) != 0; }

bool is_word_character(char32_t character) {
  const auto point = static_cast<UChar32>(character);
  return (category_mask(character) & kWord) != 0 || u_hasBinaryProperty(point, UCHAR_ALPHABETIC) != 0 ||
         u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL) != 0;
}

bool is_combining_mark(char32_t character) {
  const auto point = static_cast<UChar32>(character);
  return (U_GET_GC_MASK(point) & U_GC_M_MASK) != 0 && unicode_age(character) <= 10;
}

int unicode_age(char32_t character) {
  UVersionInfo version;
  u_charAge(static_cast<UChar32>(character), version);
  return version[0];
}

std::string later_ranges(std::string_view name) {
  std::string ranges;
  const auto append = [&](const LaterCharacters& each) {
    ranges += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<std::uint32_t>(each.first),
                          static_cast<std::uint32_t>(each.last));
  };
  for (const auto& each : kLater)
    if (is_in_class(each.category, name)) append(each);
  for (const auto& each : kLaterScripts)
    if (each.category == name) append(each);
  return ranges;
}

}  // namespace gantry
