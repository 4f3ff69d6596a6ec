// Tokens such as <|endoftext|> that are searched for in a text before it is split.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gantry/data/tokenizers/normalizer.h"

namespace gantry {

// An entry of tokenizer.json's added_tokens.
struct AddedToken {
  std::int64_t id = 0;
  std::string content;
  bool is_special = false;     // omitted from decoded text on request
  bool single_word = false;    // matches only if no word character is next to it
  bool strip_left = false;     // includes the white space before it (lstrip)
  bool strip_right = false;    // includes the white space after it (rstrip)
  bool is_normalized = false;  // searched for after the others, in the normalized text between them
};

// A part of a text: an added token, or text between them.
struct TextPart {
  static constexpr std::int64_t kText = -1;
  std::int64_t id = kText;
  std::string_view text;
  bool at_start = false;  // it is at the start of the full text
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // `normalizer` may be null. Throws InputError for an empty token, because it would match everywhere.
  AddedTokens(const std::vector<AddedToken>& tokens, std::shared_ptr<const Normalizer> normalizer);

  // Splits valid UTF-8 into parts, in order. No part is empty. At each position the longest token matches.
  // The parts refer to `text`. The tokens of a part do not depend on the rest of the text.
  std::vector<TextPart> split(std::string_view text) const;
  // Passes the parts of a part to `take`: the part itself if it is a token; otherwise its normalized text,
  // split at the tokens with is_normalized. Their texts are valid only during the call of `take`.
  using Take = std::function<void(const TextPart& part)>;
  void split_normalized(const TextPart& part, const Take& take) const;

 private:
  // Tokens of one pass, by first byte, the longest first.
  struct Pass {
    std::array<std::vector<AddedToken>, 256> tokens;
    std::array<bool, 256> begins = {};  // some token begins with the byte
  };
  static std::vector<TextPart> split_pass(const Pass& pass, std::string_view text);

  std::array<Pass, 2> passes_;  // tokens searched for in the original text, and in the normalized text
  std::shared_ptr<const Normalizer> normalizer_;
};

}  // namespace gantry
