// Tokens that are found in a text as they are, before it is split: <|endoftext|> and its like.
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
  bool is_special = false;     // left out of decoded text on request
  bool single_word = false;    // only where no word character touches it
  bool strip_left = false;     // takes the white space before it (lstrip)
  bool strip_right = false;    // and after it (rstrip)
  bool is_normalized = false;  // looked for after the others, in what the normalizer makes of what they leave
};

// A part of a text: an added token, or text between them.
struct TextPart {
  static constexpr std::int64_t kText = -1;
  std::int64_t id = kText;
  std::string_view text;
  bool at_start = false;  // whether the whole text begins with it
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // `normalizer` may be null. InputError for a token without a character, which would be found everywhere.
  AddedTokens(const std::vector<AddedToken>& tokens, std::shared_ptr<const Normalizer> normalizer);

  // The parts of valid UTF-8 in order, none of them empty. At each place the longest token counts. Their texts are
  // those of `text`, and each part has the same tokens in every text.
  std::vector<TextPart> split(std::string_view text) const;
  // Gives the parts of a part: itself if it is a token, else its normalized text between the tokens that are looked for
  // there. Their texts are valid during the call.
  using Take = std::function<void(const TextPart& part)>;
  void split_normalized(const TextPart& part, const Take& take) const;

 private:
  // Tokens of one pass, by first byte, the longest first.
  struct Pass {
    std::array<std::vector<AddedToken>, 256> tokens;
    std::array<bool, 256> begins = {};  // some token begins with the byte
  };
  static std::vector<TextPart> split_pass(const Pass& pass, std::string_view text);

  std::array<Pass, 2> passes_;  // as they are, normalized
  std::shared_ptr<const Normalizer> normalizer_;
};

}  // namespace gantry
