// Reads a vocab.txt and the tokenizer_config.json next to it.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/special_tokens.h"
#include "gantry/data/word_piece.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMostWordFileBytes = 64u << 20;  // BERT's files have 230 kB, multilingual ones 1 MB

std::string read_small_file(const fs::path& path) {
  std::error_code failure;
  const auto size = fs::is_regular_file(path, failure) ? fs::file_size(path, failure) : 0;
  if (size > kMostWordFileBytes)
    throw InputError(
        {path.string(), fmt::format("the file has {} bytes", size), fmt::format("at most {}", kMostWordFileBytes), ""});
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (size == 0 || file.bad())
    throw InputError({path.string(), path_exists(path) ? "the file is empty or cannot be read" : std::strerror(ENOENT),
                      "a BERT tokenizer file", "pass its vocab.txt or the directory that contains it"});
  return bytes;
}

std::vector<std::string> read_vocabulary(const fs::path& path) {
  const std::string bytes = read_small_file(path);
  std::vector<std::string> tokens;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
    const bool has_return = end > at && bytes[end - 1] == '\r';
    tokens.push_back(bytes.substr(at, end - at - (has_return ? 1 : 0)));
    if (valid_utf8_prefix(tokens.back()) < tokens.back().size())
      throw InputError({fmt::format("{}:{}", path.string(), tokens.size()), "the token is not valid UTF-8",
                        "one token per line", ""});
    at = end + 1;
  }
  return tokens;
}

void take_flag(const JsonView& config, const char* key, auto& flag) {
  if (const auto value = config.find(key)) flag = value->flag();
}

void take_token(const JsonView& config, const char* key, std::string& token) {
  if (const auto value = config.find(key)) token = token_content(*value);
}

// Reads a list of tokens, or an object of named tokens.
void take_tokens(const JsonView& config, const char* key, std::vector<std::string>& tokens) {
  const auto values = config.find(key);
  if (!values) return;
  if (!values->json().is_structured()) values->refuse("a list of tokens");
  for (const auto& value : values->json()) tokens.push_back(token_content({value, values->place()}));
}

// added_tokens_decoder: {"100": {"content": "[UNK]", "lstrip": false, ...}, ...}
void take_added(const JsonView& config, const std::vector<std::string>& vocabulary, std::vector<std::string>& special) {
  const auto added = config.find("added_tokens_decoder");
  if (!added) return;
  for (const auto& [id, value] : added->object().items()) {
    const JsonView token(value, fmt::format("{}.{}", added->place(), id));
    const std::string& content = token.at("content").text();
    const bool is_number = !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number || std::stoul(id) >= vocabulary.size() || vocabulary[std::stoul(id)] != content)
      token.at("content").refuse("a token of vocab.txt with its line's number, from 0");
    for (const char* flag : {"lstrip", "rstrip", "single_word", "normalized"})
      if (const auto found = token.find(flag); found && found->flag())
        found->refuse("false", "use a tokenizer with this value");
    special.push_back(content);
  }
}

}  // namespace

WordPiece WordPiece::load(const std::string& path) {
  const fs::path file = is_folder(path) ? fs::path(path) / "vocab.txt" : fs::path(path);
  const auto vocabulary = read_vocabulary(file);
  WordPieceOptions options;
  const fs::path extra = file.parent_path() / "tokenizer_config.json";
  if (path_exists(extra)) {
    const auto parsed = read_json_file(extra, kMostWordFileBytes);
    const JsonView config(parsed, extra.string());
    take_flag(config, "do_lower_case", options.lower_case);
    take_flag(config, "strip_accents", options.strip_accents);
    take_flag(config, "tokenize_chinese_chars", options.tokenize_chinese_chars);
    take_token(config, "unk_token", options.unknown);
    take_token(config, "cls_token", options.classifier);
    take_token(config, "sep_token", options.separator);
    take_token(config, "pad_token", options.padding);
    take_token(config, "mask_token", options.mask);
    take_tokens(config, "additional_special_tokens", options.more_special);
    take_tokens(config, "extra_special_tokens", options.more_special);
    take_added(config, vocabulary, options.more_special);
  }
  try {
    return WordPiece(vocabulary, options);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", file.string(), error.what()));
  }
}

}  // namespace gantry
