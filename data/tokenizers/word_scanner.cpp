#include "gantry/data/tokenizers/word_scanner.h"

#include <array>
#include <cstdint>
#include <iterator>
#include <unicode/uchar.h>
#include <vector>

#include "gantry/data/tokenizers/characters.h"
#include "gantry/data/tokenizers/text_pattern.h"

namespace gantry {
namespace {

enum CharacterClass : std::uint8_t { kOther, kLetter, kNumber, kSpace };

constexpr char32_t kLongS = 0x17F;  // equal to 's' if the case is ignored

// The class of every code point.
const std::vector<std::uint8_t>& class_table() {
  static const auto kTable = [] {
    std::vector<std::uint8_t> table(0x110000, kOther);
    for (char32_t c = 0; c < table.size(); ++c) {
      const std::uint32_t mask = category_mask(c);
      table[c] = (mask & U_GC_L_MASK) != 0   ? kLetter
                 : (mask & U_GC_N_MASK) != 0 ? kNumber
                 : is_white_space(c)         ? kSpace
                                             : kOther;
    }
    return table;
  }();
  return kTable;
}

// A position in a valid UTF-8 text and the character there.
class Cursor {
 public:
  Cursor(std::string_view text, std::size_t at, const std::uint8_t* classes) : text_(text), classes_(classes), at_(at) {
    read();
  }
  std::size_t at() const { return at_; }
  bool is_end() const { return length_ == 0; }
  char32_t character() const { return character_; }
  bool is(CharacterClass wanted) const { return length_ > 0 && class_ == wanted; }
  bool is_newline() const { return length_ > 0 && (character_ == '\n' || character_ == '\r'); }
  void next() {
    at_ += length_;
    read();
  }
  void skip(CharacterClass wanted) {
    while (is(wanted)) next();
  }
  Cursor after() const {
    Cursor copy = *this;
    copy.next();
    return copy;
  }

 private:
  void read() {
    length_ = 0;
    if (at_ >= text_.size()) return;
    const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text_[at_ + i])); };
    const char32_t first = byte(0);
    if (first < 0x80) {
      character_ = first, length_ = 1;
    } else if (first < 0xE0) {
      character_ = (first & 0x1F) << 6 | (byte(1) & 0x3F), length_ = 2;
    } else if (first < 0xF0) {
      character_ = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), length_ = 3;
    } else {
      character_ = (first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
      length_ = 4;
    }
    class_ = classes_[character_];
  }

  std::string_view text_;
  const std::uint8_t* classes_;
  std::size_t at_;
  std::size_t length_ = 0;  // bytes of the character; 0 at the end
  char32_t character_ = 0;
  std::uint8_t class_ = kOther;
};

// The end of 's, 't, 're, 've, 'm, 'll or 'd after an apostrophe; 0 if there is none.
std::size_t contraction_end(const Cursor& apostrophe, bool ignores_case) {
  const auto letter = [&](const Cursor& cursor) -> char32_t {
    const char32_t c = cursor.is_end() ? 0 : cursor.character();
    if (!ignores_case) return c;
    return c == kLongS ? U's' : c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
  };
  const Cursor first = apostrophe.after();
  const char32_t one = letter(first);
  if (one == 's' || one == 't' || one == 'm' || one == 'd') return first.after().at();
  const char32_t wanted = one == 'l' ? U'l' : one == 'r' || one == 'v' ? U'e' : 0;
  if (wanted == 0) return 0;
  const Cursor second = first.after();
  return letter(second) == wanted ? second.after().at() : 0;
}

// The end of \s+(?!\S)|\s+: white space before a word leaves its last character to the word.
std::size_t space_end(Cursor cursor) {
  std::size_t last = cursor.at();
  const std::size_t begin = last;
  for (; cursor.is(kSpace); cursor.next()) last = cursor.at();
  return cursor.is_end() || last == begin ? cursor.at() : last;
}

// '(s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
struct Gpt2 {
  static std::size_t end(const Cursor& begin) {
    if (begin.character() == '\'')
      if (const std::size_t end = contraction_end(begin, false)) return end;
    Cursor cursor = begin;
    if (cursor.character() == ' ') cursor.next();
    for (const auto each : {kLetter, kNumber, kOther}) {
      if (!cursor.is(each)) continue;
      cursor.skip(each);
      return cursor.at();
    }
    return space_end(begin);
  }
};

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,kDigits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
// \s+(?!\S)|\s+
template <int kDigits>
struct Llama3 {
  static std::size_t end(const Cursor& begin) {
    if (begin.character() == '\'')
      if (const std::size_t end = contraction_end(begin, true)) return end;
    Cursor cursor = begin;
    if (begin.is(kNumber)) {
      for (int i = 0; i < kDigits && cursor.is(kNumber); ++i) cursor.next();
      return cursor.at();
    }
    if (!begin.is(kLetter) && !begin.is_newline()) cursor.next();
    if (cursor.is(kLetter)) {
      cursor.skip(kLetter);
      return cursor.at();
    }
    if (begin.is(kOther) || (begin.character() == ' ' && cursor.is(kOther))) {
      cursor.skip(kOther);
      while (cursor.is_newline()) cursor.next();
      return cursor.at();
    }
    std::size_t after_newline = 0;
    for (cursor = begin; cursor.is(kSpace);) {
      const bool is_newline = cursor.is_newline();
      cursor.next();
      if (is_newline) after_newline = cursor.at();
    }
    return after_newline > 0 ? after_newline : space_end(begin);
  }
};

template <class Pattern>
void scan(std::string_view text, const std::function<void(std::string_view, bool)>& visit) {
  const std::uint8_t* classes = class_table().data();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = Pattern::end(Cursor(text, begin, classes));
    visit(text.substr(begin, end - begin), true);
    begin = end;
  }
}

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace

WordScanner word_scanner_of(std::string_view pattern) {
  if (pattern == kGpt2Pattern) return scan<Gpt2>;
  if (pattern == kLlama3Pattern) return scan<Llama3<3>>;
  if (pattern == kQwen2Pattern) return scan<Llama3<1>>;
  return nullptr;
}

}  // namespace gantry
