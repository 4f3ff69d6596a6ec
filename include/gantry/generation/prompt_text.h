// Prompts and continuations as text and as tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

class PromptText {
 public:
  // `path` as load_tokenizer() takes it. Texts begin with the first token that the tokenizer's files put there.
  explicit PromptText(const std::string& path);

  TokenIds encode(const std::string& text) const;
  std::string decode(const TokenIds& tokens) const;  // bytes; maybe half a character at the end
  // "13", or a text that is one token. UsageError for other text.
  std::int64_t token_of(const std::string& word) const;
  std::int64_t size() const { return tokenizer_->size(); }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  TokenIds first_;
};

// "1,2,3". UsageError.
TokenIds parse_tokens(const std::string& text);

// Prints a text while it grows, in whole characters. What is no UTF-8 becomes U+FFFD.
class GrowingText {
 public:
  // `text` is all of it so far; a longer one each time.
  void show(const std::string& text);
  void finish(const std::string& text);

 private:
  std::size_t shown_ = 0;  // bytes
};

}  // namespace gantry
