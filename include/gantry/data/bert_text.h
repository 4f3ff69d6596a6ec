// BERT's text processing before WordPiece: decodes UTF-8 to characters with their byte positions, normalises them, and
// splits them into words.
//
// The result equals that of BertNormalizer and BertPreTokenizer in Hugging Face's tokenizers (used by
// BertTokenizerFast). Their Unicode data are older than ICU's: categories are those of Unicode 8.0, decompositions
// those of 9.0. Later characters count as unassigned (neither mark nor punctuation), because pre-trained models have
// seen them so. Case mapping is that of Unicode 17.
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

// A character, possibly normalised, and the bytes of the original text that it comes from.
struct TextCharacter {
  char32_t value = 0;
  ByteSpan source;
};
using TextCharacters = std::vector<TextCharacter>;

struct BertTextOptions {
  bool clean_text = true;  // removal of control characters; white space becomes ' '
  bool lower_case = true;
  bool strip_accents = true;  // canonical decomposition and removal of nonspacing marks; Hangul stays decomposed
  bool tokenize_chinese_chars = true;
};

bool is_nonspacing_mark(char32_t character);
bool is_bert_punctuation(char32_t character);  // ASCII symbols are punctuation
// Converts each character separately, so a final sigma is not special. The dotted capital I is the only character that
// becomes two.
TextCharacters to_lower(const TextCharacters& text);

// Decodes UTF-8 text; `base` is added to byte positions. Throws InputError with the position of an invalid byte.
TextCharacters characters_of(std::string_view text, std::int64_t base = 0);

// Removes control characters, replaces white space by ' ', puts spaces around CJK ideographs, strips accents and
// converts to lower case, in this order.
TextCharacters bert_normalise(const TextCharacters& text, const BertTextOptions& options);

// Splits at white space. Each punctuation character is a word.
std::vector<TextCharacters> bert_words(const TextCharacters& normalised);

}  // namespace gantry
