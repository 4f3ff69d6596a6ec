// Converts prompts and continuations between text and tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gantry/data/tokenizers/text_ends.h"

namespace gantry {

class PromptText {
 public:
  // `path`: see load_tokenizer().
  explicit PromptText(const std::string& path, const TextEnds& ends = {});

  // Returns the ids of the text between the special tokens of a prompt (Llama's <s>, T5's </s>). They are not doubled
  // if the text begins or ends with them.
  TokenIds encode(const std::string& text) const;
  std::string decode(const TokenIds& tokens) const;  // bytes; may end within a UTF-8 character
  // Parses a token number ("13"), or a text that is a single token. Throws UsageError for other texts.
  std::int64_t token_of(const std::string& word) const;
  std::int64_t size() const { return tokenizer_->size(); }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  SurroundingTokens ends_;
};

// Parses "1,2,3". Throws UsageError for other texts.
TokenIds parse_tokens(const std::string& text);

// Prints a growing text in complete characters. Invalid UTF-8 is printed as U+FFFD.
class GrowingText {
 public:
  // `text` is the full text so far. It must be longer in each call.
  void show(const std::string& text);
  void finish(const std::string& text);

 private:
  std::size_t shown_ = 0;  // number of bytes printed so far
};

}  // namespace gantry
