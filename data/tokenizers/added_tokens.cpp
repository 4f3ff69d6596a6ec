#include "gantry/data/tokenizers/added_tokens.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/tokenizers/characters.h"

namespace gantry {
namespace {

// Returns the character of valid UTF-8 that begins at `at`, and moves `at` to its end.
char32_t character_at(std::string_view text, std::size_t& at) {
  const auto [length, character] = first_utf8(text.substr(at));
  at += length;
  return character.value_or(0);
}

// Returns the character that ends at `at`, and moves `at` to its begin.
char32_t character_before(std::string_view text, std::size_t& at) {
  at = utf8_start(text, at - 1);
  std::size_t end = at;
  return character_at(text, end);
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  std::size_t before = begin, after = end;
  if (begin > 0 && is_word_character(character_before(text, before))) return false;
  return end == text.size() || !is_word_character(character_at(text, after));
}

std::size_t skip_space_left(std::string_view text, std::size_t at) {
  for (std::size_t next = at; at > 0; at = next)
    if (!is_white_space(character_before(text, next))) break;
  return at;
}

std::size_t skip_space_right(std::string_view text, std::size_t at) {
  for (std::size_t next = at; at < text.size(); at = next)
    if (!is_white_space(character_at(text, next))) break;
  return at;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, std::shared_ptr<const Normalizer> normalizer)
    : normalizer_(std::move(normalizer)) {
  for (AddedToken token : tokens) {
    if (token.is_normalized && normalizer_) token.content = normalizer_->apply(token.content);
    if (token.content.empty())
      throw InputError({fmt::format("added token {}", token.id), "the token has no characters", "the text of the token",
                        "remove it from the tokenizer's files"});
    Pass& pass = passes_[token.is_normalized ? 1 : 0];
    const auto first = static_cast<unsigned char>(token.content[0]);
    pass.tokens[first].push_back(token);
    pass.begins[first] = true;
  }
  for (auto& pass : passes_)
    for (auto& list : pass.tokens)
      std::stable_sort(list.begin(), list.end(),
                       [](const auto& a, const auto& b) { return a.content.size() > b.content.size(); });
}

std::vector<TextPart> AddedTokens::split(std::string_view text) const { return split_pass(passes_[0], text); }

void AddedTokens::split_normalized(const TextPart& part, const Take& take) const {
  if (part.id != TextPart::kText) return take(part);
  const std::string normalized = normalizer_ ? normalizer_->apply(part.text) : std::string();
  for (TextPart each : split_pass(passes_[1], normalizer_ ? std::string_view(normalized) : part.text)) {
    each.at_start = each.at_start && part.at_start;
    take(each);
  }
}

std::vector<TextPart> AddedTokens::split_pass(const Pass& pass, std::string_view text) {
  std::vector<TextPart> parts;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    if (!pass.begins[first]) {
      ++at;
      continue;
    }
    const auto& list = pass.tokens[first];
    const auto token = std::find_if(list.begin(), list.end(),
                                    [&](const auto& each) { return text.substr(at).starts_with(each.content); });
    if (token == list.end()) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->single_word && !stands_alone(text, begin, end)) continue;
    if (token->strip_left) begin = std::max(skip_space_left(text, begin), done);
    if (token->strip_right) end = skip_space_right(text, end);
    if (begin > done) parts.push_back({TextPart::kText, text.substr(done, begin - done), done == 0});
    parts.push_back({token->id, text.substr(begin, end - begin), begin == 0});
    done = end;
  }
  if (done < text.size()) parts.push_back({TextPart::kText, text.substr(done), done == 0});
  return parts;
}

}  // namespace gantry
