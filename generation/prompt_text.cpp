#include "gantry/generation/prompt_text.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/core/io/output.h"

namespace gantry {
namespace {

constexpr std::size_t kLongestCharacter = 4;  // bytes

}  // namespace

PromptText::PromptText(const std::string& path, const TextEnds& ends)
    : tokenizer_(load_tokenizer(path)), ends_(ends_of_prompt(*tokenizer_, ends)) {}

TokenIds PromptText::encode(const std::string& text) const {
  TokenIds tokens = tokenizer_->encode(text);
  surround(tokens, ends_);
  return tokens;
}

std::string PromptText::decode(const TokenIds& tokens) const { return tokenizer_->decode(tokens); }

std::int64_t PromptText::token_of(const std::string& word) const {
  const TokenIds tokens = tokenizer_->encode(word);
  if (tokens.size() != 1)
    throw UsageError(
        {"--stop", fmt::format("'{}' is {} tokens", word, tokens.size()), "a number, or text that is one token", ""});
  return tokens.front();
}

TokenIds parse_tokens(const std::string& text) {
  TokenIds tokens;
  for (const char *at = text.data(), *end = at + text.size();;) {
    std::int64_t token = 0;
    const auto [next, fault] = std::from_chars(at, end, token);
    if (fault != std::errc() || token < 0 || (next != end && *next != ','))
      throw UsageError({"--tokens", fmt::format("'{}' is not a list of tokens", text),
                        "numbers separated by commas, such as 1,2,3", ""});
    tokens.push_back(token);
    if (next == end) return tokens;
    at = next + 1;
  }
}

void GrowingText::show(const std::string& text) {
  const std::string_view more = std::string_view(text).substr(std::min(shown_, text.size()));
  std::size_t full = valid_utf8_prefix(more);
  if (more.size() - full >= kLongestCharacter) full = more.size();  // the rest cannot become a character
  if (full == 0) return;
  print_output(valid_utf8(more.substr(0, full)));
  shown_ += full;
}

void GrowingText::finish(const std::string& text) {
  show(text);
  if (shown_ < text.size()) print_output(valid_utf8(std::string_view(text).substr(shown_)));
  shown_ = text.size();
}

}  // namespace gantry
