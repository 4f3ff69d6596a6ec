#include "gantry/generation/prompt_text.h"

#include <charconv>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/output.h"
#include "gantry/core/paths.h"
#include "gantry/core/utf8.h"
#include "gantry/data/tokenizers/json_file.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kLargestTokenizerJson = 256 << 20;  // of a tokenizer.json
constexpr std::size_t kLongestCharacter = 4;                 // bytes

// The template that tokenizer.json puts a text into may begin with a special token.
bool template_begins(const fs::path& file) {
  const auto json = read_json_file(file, kLargestTokenizerJson);
  std::vector<nlohmann::json> processors = {json.value("post_processor", nlohmann::json())};
  if (processors[0].is_object() && processors[0].contains("processors"))
    processors = processors[0]["processors"].get<std::vector<nlohmann::json>>();
  for (const auto& processor : processors)
    if (processor.is_object() && processor.value("type", "") == "TemplateProcessing" && processor.contains("single"))
      return !processor["single"].empty() && processor["single"][0].contains("SpecialToken");
  return false;
}

// As transformers' tokenizer of this folder does by itself.
bool begins_with_special(const fs::path& folder) {
  const fs::path settings = folder / "tokenizer_config.json", whole = folder / "tokenizer.json";
  if (path_exists(settings)) {
    const auto json = read_json_file(settings, kLargestTokenizerJson);
    if (json.is_object() && json.contains("add_bos_token") && json["add_bos_token"].is_boolean())
      return json["add_bos_token"].get<bool>();
  }
  return path_exists(whole) ? template_begins(whole) : path_exists(folder / "tokenizer.model");
}

}  // namespace

PromptText::PromptText(const std::string& path) : tokenizer_(load_tokenizer(path)) {
  if (is_byte_tokenizer(path)) return;
  const fs::path folder = is_folder(path) ? fs::path(path) : fs::path(path).parent_path();
  if (const auto begin = tokenizer_->special().begin; begin && begins_with_special(folder)) first_ = {*begin};
}

TokenIds PromptText::encode(const std::string& text) const {
  TokenIds tokens = first_;
  tokenizer_->append(text, tokens);
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
  std::size_t whole = valid_utf8_prefix(more);
  if (more.size() - whole >= kLongestCharacter) whole = more.size();  // no character will come of it
  if (whole == 0) return;
  print_output(valid_utf8(more.substr(0, whole)));
  shown_ += whole;
}

void GrowingText::finish(const std::string& text) {
  show(text);
  if (shown_ < text.size()) print_output(valid_utf8(std::string_view(text).substr(shown_)));
  shown_ = text.size();
}

}  // namespace gantry
