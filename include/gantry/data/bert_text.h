// BERT's treatment of text before WordPiece: UTF-8 to characters that remember their bytes, normalisation, words.
//
// Equal to the BertNormalizer and BertPreTokenizer of Hugging Face's tokenizers (the ones behind BertTokenizerFast),
// whose Unicode data are older than ICU's: categories are those of Unicode 8.0 and decompositions those of 9.0.
// Characters that came later are unassigned here too (no mark, no punctuation), since pre-trained models saw them so.
// Case is of the ICU that this build links; a letter newer than it keeps its case.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gantry {

// The bytes [begin, end) of a text.
struct ByteSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const ByteSpan&) const = default;
};

// A character of a text that may have been changed, and the bytes of the original that it stems from.
struct TextCharacter {
  char32_t value = 0;
  ByteSpan source;
};
using TextCharacters = std::vector<TextCharacter>;

struct BertTextOptions {
  bool lower_case = true;
  bool strip_accents = true;  // canonical decomposition, then nonspacing marks removed; Hangul stays decomposed
  bool tokenize_chinese_chars = true;
};

bool is_nonspacing_mark(char32_t character);
// Character by character, so that a final sigma is as any other; the dotted I is the one that becomes two.
TextCharacters to_lower(const TextCharacters& text);

// The characters of UTF-8 text; `base` is added to their places. InputError names the byte that is no UTF-8.
TextCharacters characters_of(std::string_view text, std::int64_t base = 0);

// In this order: control characters removed and white space made ' ', CJK ideographs set between spaces, accents
// stripped, lower case.
TextCharacters bert_normalise(const TextCharacters& text, const BertTextOptions& options);

// Split at white space; each punctuation character is a word of its own.
std::vector<TextCharacters> bert_words(const TextCharacters& normalised);

}  // namespace gantry
