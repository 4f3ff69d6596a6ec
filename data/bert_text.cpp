#include "gantry/data/bert_text.h"

#include <algorithm>
#include <fmt/format.h>
#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/utf16.h>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr int kCategoryVersion = 8;       // Unicode version, see bert_text.h
constexpr int kDecompositionVersion = 9;  // Unicode version, see bert_text.h
constexpr int kMostUnits = 32;            // UTF-16 units in a canonical decomposition; the longest has 4
constexpr std::uint32_t kControl = U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK;
constexpr char32_t kDottedCapitalI = 0x130, kDotAbove = 0x307;

struct Block {
  char32_t first, last;
};
// The blocks that tokenizers treats as Chinese. Extension E begins at 2B920 instead of 2B820 there, and
// models were trained with it.
constexpr Block kChinese[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
                              {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};

bool is_known(char32_t c, int version) {
  if (c < 0x80) return true;
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] < version || (age[0] == version && age[1] == 0);
}

// Returns the general category in Unicode 8.0, as a bit. Later versions changed it for these characters.
std::uint32_t category(char32_t c) {
  switch (c) {
    case 0x166D:   // Canadian syllabics chi sign
    case 0x111C9:  // Sharada sandhi mark
      return U_GC_PO_MASK;
    case 0x1734:  // Hanunoo sign pamudpod
      return U_GC_MN_MASK;
    case 0x1885:  // Mongolian Ali Gali baludas
    case 0x1886:
      return U_GC_LO_MASK;
    case 0xA9BD:  // Javanese consonant sign keret
      return U_GC_MC_MASK;
    default:
      return is_known(c, kCategoryVersion) ? U_GET_GC_MASK(static_cast<UChar32>(c)) : U_GC_CN_MASK;
  }
}

// Capital letters of Unicode 16 and 17, with the distance to their lower case.
struct LaterCapitals {
  char32_t first, last;
  int distance;
};
constexpr LaterCapitals kLaterCapitals[] = {{0x1C89, 0x1C89, 1},      {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
                                            {0xA7CC, 0xA7CC, 1},      {0xA7CE, 0xA7CE, 1},
                                            {0xA7D2, 0xA7D2, 1},      {0xA7D4, 0xA7D4, 1},
                                            {0xA7DA, 0xA7DA, 1},      {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
                                            {0x10D50, 0x10D65, 0x20}, {0x16EA0, 0x16EB8, 0x1B}};

char32_t lower_of(char32_t c) {
  for (const auto& [first, last, distance] : kLaterCapitals)
    if (first <= c && c <= last) return static_cast<char32_t>(static_cast<int>(c) + distance);
  return static_cast<char32_t>(u_tolower(static_cast<UChar32>(c)));
}

bool is_space(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)); }

bool is_removed(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  return c == 0 || c == 0xFFFD || (category(c) & kControl) != 0;
}

bool is_chinese(char32_t c) {
  return std::any_of(std::begin(kChinese), std::end(kChinese),
                     [&](const Block& b) { return b.first <= c && c <= b.last; });
}

TextCharacters clean(const TextCharacters& text) {
  TextCharacters cleaned;
  cleaned.reserve(text.size());
  for (const auto& c : text)
    if (!is_removed(c.value)) cleaned.push_back({is_space(c.value) ? U' ' : c.value, c.source});
  return cleaned;
}

TextCharacters space_chinese(const TextCharacters& text) {
  TextCharacters spaced;
  spaced.reserve(text.size());
  for (const auto& c : text) {
    const bool chinese = is_chinese(c.value);
    if (chinese) spaced.push_back({U' ', c.source});
    spaced.push_back(c);
    if (chinese) spaced.push_back({U' ', c.source});
  }
  return spaced;
}

struct Decomposed {
  char32_t value;
  int combining_class;
  bool is_added;  // not the first of its original character
};

void append_decomposition(std::vector<Decomposed>& out, char32_t c) {
  UErrorCode status = U_ZERO_ERROR;
  const UNormalizer2* nfd = unorm2_getNFDInstance(&status);
  if (U_FAILURE(status))
    throw InternalError(fmt::format("ICU has no canonical decomposition: {}", u_errorName(status)));
  const auto append = [&](UChar32 part, bool is_added) {
    const auto value = static_cast<char32_t>(part);
    out.push_back({value, is_known(value, kDecompositionVersion) ? u_getCombiningClass(part) : 0, is_added});
  };
  UChar units[kMostUnits];
  const int length = is_known(c, kDecompositionVersion)
                         ? unorm2_getDecomposition(nfd, static_cast<UChar32>(c), units, kMostUnits, &status)
                         : -1;
  if (length < 0) return append(static_cast<UChar32>(c), false);
  for (int i = 0; i < length;) {
    const bool is_added = i > 0;
    UChar32 part;
    U16_NEXT(units, i, length, part);
    append(part, is_added);
  }
}

// Sorts the marks after a base by their class: Unicode's canonical order.
void reorder_marks(std::vector<Decomposed>& text) {
  const auto is_base = [](const Decomposed& c) { return c.combining_class == 0; };
  for (auto run = text.begin(); run != text.end();) {
    run = std::find_if_not(run, text.end(), is_base);
    const auto end = std::find_if(run, text.end(), is_base);
    std::stable_sort(run, end, [](const auto& a, const auto& b) { return a.combining_class < b.combining_class; });
    run = end;
  }
}

// As in tokenizers, sources are assigned to the decomposed characters by position: if marks are reordered, a
// mark gets the source of the mark that was at its position before.
TextCharacters strip_accents(const TextCharacters& text) {
  std::vector<Decomposed> decomposed;
  decomposed.reserve(text.size());
  for (const auto& c : text) append_decomposition(decomposed, c.value);
  reorder_marks(decomposed);
  TextCharacters stripped;
  stripped.reserve(text.size());
  std::size_t sources = 0;
  for (const auto& c : decomposed) {
    if (!c.is_added) ++sources;
    const ByteSpan source = sources > 0 ? text[sources - 1].source : ByteSpan{};
    if (!is_nonspacing_mark(c.value)) stripped.push_back({c.value, source});
  }
  return stripped;
}

}  // namespace

bool is_nonspacing_mark(char32_t c) { return (category(c) & U_GC_MN_MASK) != 0; }

bool is_bert_punctuation(char32_t c) {
  if (c < 0x80)
    return (c > 0x20 && c < 0x30) || (c > 0x39 && c < 0x41) || (c > 0x5A && c < 0x61) || (c > 0x7A && c < 0x7F);
  return (category(c) & U_GC_P_MASK) != 0;
}

TextCharacters to_lower(const TextCharacters& text) {
  TextCharacters lower;
  lower.reserve(text.size());
  for (const auto& c : text) {
    if (c.value == kDottedCapitalI) {
      lower.push_back({U'i', c.source});
      lower.push_back({kDotAbove, c.source});
    } else {
      lower.push_back({lower_of(c.value), c.source});
    }
  }
  return lower;
}

TextCharacters characters_of(std::string_view text, std::int64_t base) {
  TextCharacters characters;
  characters.reserve(text.size());
  for (std::int64_t begin = base; !text.empty();) {
    const auto [length, character] = first_utf8(text);
    if (!character)
      throw InputError({fmt::format("byte {} of the text", begin), "the byte is not valid UTF-8", "text in UTF-8",
                        "convert the text, for example with iconv"});
    const std::int64_t end = begin + static_cast<std::int64_t>(length);
    characters.push_back({*character, {begin, end}});
    text.remove_prefix(length);
    begin = end;
  }
  return characters;
}

TextCharacters bert_normalise(const TextCharacters& text, const BertTextOptions& options) {
  TextCharacters normalised = options.clean_text ? clean(text) : text;
  if (options.tokenize_chinese_chars) normalised = space_chinese(normalised);
  if (options.strip_accents) normalised = strip_accents(normalised);
  if (options.lower_case) normalised = to_lower(normalised);
  return normalised;
}

std::vector<TextCharacters> bert_words(const TextCharacters& normalised) {
  std::vector<TextCharacters> words;
  bool is_open = false;  // the next character can belong to the last word
  for (const auto& c : normalised) {
    const bool alone = is_bert_punctuation(c.value);
    if (is_space(c.value)) {
      is_open = false;
      continue;
    }
    if (alone || !is_open) words.emplace_back();
    words.back().push_back(c);
    is_open = !alone;
  }
  return words;
}

}  // namespace gantry
