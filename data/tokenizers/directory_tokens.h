// Reads the files next to a tokenizer as Hugging Face's transformers does: tokenizer_config.json,
// special_tokens_map.json and added_tokens.json.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gantry/data/tokenizers/json_file.h"

namespace gantry {

// tokenizer_config.json with the tokens of special_tokens_map.json. Both files may be missing.
struct DirectorySettings {
  explicit DirectorySettings(const std::filesystem::path& folder);  // throws InputError for a fault in the files

  // True if added_tokens_decoder lists the added tokens. transformers then reads neither special_tokens_map.json nor
  // added_tokens.json.
  bool has_decoder() const { return view().find("added_tokens_decoder").has_value(); }
  JsonView view() const { return {config, path.string()}; }
  std::string token(const char* key, const std::string& otherwise) const;
  // Returns the entries of extra_special_tokens or, in older files, of additional_special_tokens: texts, and objects
  // with a content.
  std::vector<JsonView> extra_tokens() const;
  bool is_special(const std::string& content) const;

  std::filesystem::path path;  // tokenizer_config.json, also if it is missing
  nlohmann::json config;
  std::string name;  // tokenizer_class without "Tokenizer" or "TokenizerFast"
};

// Returns an entry of added_tokens for a special token. `token`: its text, or an object with its content and settings.
nlohmann::json special_entry(const JsonView& token, const nlohmann::json& id);

// Adds the tokens of the directory's files that `file`, the contents of a tokenizer.json, does not have: those of
// added_tokens.json, bos_token and the other named tokens, and extra_special_tokens. They get the next free ids.
// Contents that are not a tokenizer are returned as they are. Throws InputError for a fault in the other files.
nlohmann::json add_directory_tokens(nlohmann::json file, const DirectorySettings& settings);

// Returns the ids of all tokens by their texts: of the vocabulary of `file`, of its added_tokens and of
// added_tokens_decoder.
nlohmann::json ids_with_added(const nlohmann::json& file, const DirectorySettings& settings);

}  // namespace gantry
