// Reading a vocab.txt and the tokenizer_config.json beside it.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/paths.h"
#include "gantry/core/utf8.h"
#include "gantry/data/word_piece.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uintmax_t kMostWordFileBytes = 64u << 20;  // BERT's own are about 230 kB, multilingual ones 1 MB
constexpr const char* kAdded = "added_tokens_decoder";

std::string read_small_file(const fs::path& path) {
  std::error_code failure;
  const auto size = fs::is_regular_file(path, failure) ? fs::file_size(path, failure) : 0;
  if (size > kMostWordFileBytes)
    throw InputError(
        {path.string(), fmt::format("has {} bytes", size), fmt::format("at most {}", kMostWordFileBytes), ""});
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (size == 0 || file.bad())
    throw InputError({path.string(), path_exists(path) ? "is empty or can't be read" : std::strerror(ENOENT),
                      "a file of a BERT tokenizer", "give its vocab.txt or the folder that holds it"});
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
      throw InputError({fmt::format("{}:{}", path.string(), tokens.size()), "is no UTF-8", "a token a line", ""});
    at = end + 1;
  }
  return tokens;
}

// What a value is, for an error; nested ones only by type, since they may be of any depth.
std::string shown_value(const json& value) { return value.is_structured() ? value.type_name() : value.dump(); }

// tokenizer_config.json with getters that say which key is wrong.
class TokenizerConfig {
 public:
  explicit TokenizerConfig(const fs::path& path) : path_(path.string()) {
    json_ = json::parse(read_small_file(path), nullptr, /*allow_exceptions=*/false);
    if (!json_.is_object()) throw InputError({path_, "is no JSON object", "", "fetch it again"});
  }

  void read_flag(const char* key, auto& flag) const {
    const auto value = json_.find(key);
    if (value == json_.end() || value->is_null()) return;
    if (!value->is_boolean()) refuse(key, shown_value(*value), "true, false or null");
    flag = value->get<bool>();
  }

  void read_token(const char* key, std::string& token) const {
    const auto value = json_.find(key);
    if (value != json_.end() && !value->is_null()) token = content_of(key, *value);
  }

  // A list of tokens, or an object of named ones.
  void read_tokens(const char* key, std::vector<std::string>& tokens) const {
    const auto values = json_.find(key);
    if (values == json_.end() || values->is_null()) return;
    if (!values->is_structured()) refuse(key, shown_value(*values), "a list of tokens");
    for (const auto& value : *values) tokens.push_back(content_of(key, value));
  }

  // added_tokens_decoder: {"100": {"content": "[UNK]", "lstrip": false, ...}, ...}
  void read_added(const std::vector<std::string>& vocabulary, std::vector<std::string>& special) const {
    const auto added = json_.find(kAdded);
    if (added == json_.end()) return;
    if (!added->is_object()) refuse(kAdded, shown_value(*added), "an object");
    for (const auto& [id, token] : added->items()) {
      if (!token.is_object() || !token.contains("content") || !token["content"].is_string())
        refuse(kAdded, fmt::format("{} {}", id, shown_value(token)), "an object with content");
      const auto content = token["content"].get<std::string>();
      const bool is_number = !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
      if (!is_number || std::stoul(id) >= vocabulary.size() || vocabulary[std::stoul(id)] != content)
        refuse(kAdded, fmt::format("{} '{}'", id, content), "a token of vocab.txt with its line's number, from 0");
      for (const char* flag : {"lstrip", "rstrip", "single_word", "normalized"})
        if (token.contains(flag) && token[flag] != false)
          refuse(kAdded, fmt::format("{} '{}' with {} {}", id, content, flag, shown_value(token[flag])),
                 "false, the only one that is supported");
      special.push_back(content);
    }
  }

 private:
  // A token is a string, or an object with "content".
  std::string content_of(const char* key, const json& value) const {
    const json& content = value.is_object() && value.contains("content") ? value["content"] : value;
    if (!content.is_string()) refuse(key, shown_value(value), "a token");
    return content.get<std::string>();
  }

  [[noreturn]] void refuse(const char* key, const std::string& value, const std::string& expected) const {
    throw InputError({fmt::format("{}: {}", path_, key), fmt::format("is {}", value), expected, ""});
  }

  std::string path_;
  json json_;
};

}  // namespace

WordPiece WordPiece::load(const std::string& path) {
  const fs::path file = is_folder(path) ? fs::path(path) / "vocab.txt" : fs::path(path);
  const auto vocabulary = read_vocabulary(file);
  WordPieceOptions options;
  const fs::path beside = file.parent_path() / "tokenizer_config.json";
  if (path_exists(beside)) {
    const TokenizerConfig config(beside);
    config.read_flag("do_lower_case", options.lower_case);
    config.read_flag("strip_accents", options.strip_accents);
    config.read_flag("tokenize_chinese_chars", options.tokenize_chinese_chars);
    config.read_token("unk_token", options.unknown);
    config.read_token("cls_token", options.classifier);
    config.read_token("sep_token", options.separator);
    config.read_token("pad_token", options.padding);
    config.read_token("mask_token", options.mask);
    config.read_tokens("additional_special_tokens", options.more_special);
    config.read_tokens("extra_special_tokens", options.more_special);
    config.read_added(vocabulary, options.more_special);
  }
  try {
    return WordPiece(vocabulary, options);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", file.string(), error.what()));
  }
}

}  // namespace gantry
