// Tokens that are found in a text as they are, before it is split: <|endoftext|> and its like.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gantry/data/tokenizers/text_split.h"

namespace gantry {

// An entry of tokenizer.json's added_tokens.
struct AddedToken {
  std::int64_t id = 0;
  std::string content;
  bool single_word = false;    // only where no word character touches it
  bool strip_left = false;     // takes the white space before it (lstrip)
  bool strip_right = false;    // and after it (rstrip)
  bool is_normalized = false;  // looked for after the others, in what they leave
};

// A part of a text: an added token, or text between them.
struct TextPart {
  static constexpr std::int64_t kText = -1;
  std::int64_t id = kText;
  std::string_view text;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(const std::vector<AddedToken>& tokens);

  // The parts of valid UTF-8 in order, none of them empty. At each place the longest token counts.
  std::vector<TextPart> split(std::string_view text) const;

 private:
  // Tokens of one pass, by first byte, the longest first.
  using Pass = std::array<std::vector<AddedToken>, 256>;
  static void split_pass(const Pass& pass, std::string_view text, std::vector<TextPart>& parts);

  std::array<Pass, 2> passes_;  // as they are, normalized
};

}  // namespace gantry
