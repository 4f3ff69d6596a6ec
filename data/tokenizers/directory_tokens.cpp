#include "gantry/data/tokenizers/directory_tokens.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <vector>

#include "gantry/core/io/paths.h"
#include "gantry/data/tokenizers/special_tokens.h"
#include "gantry/data/tokenizers/vocabulary.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};

bool has_content(const json& added, const std::string& content) {
  return std::ranges::any_of(added, [&](const json& token) {
    return token.is_object() && token.contains("content") && token["content"] == content;
  });
}

// Ids by token.
json read_added_json(const fs::path& folder, std::size_t vocabulary) {
  const fs::path path = folder / "added_tokens.json";
  if (!path_exists(path)) return json::object();
  json file = read_json_file(path, kMostTokenizerBytes);
  const std::int64_t limit = token_id_limit(vocabulary + JsonView(file, path.string()).object().size());
  for (const auto& [token, id] : file.items()) JsonView(id, fmt::format("{}: '{}'", path.string(), token)).count(limit);
  return file;
}

// Calls `take` for each token of added_tokens_decoder. read_added_decoder() reports keys that are not ids.
template <class Take>
void visit_decoder(const DirectorySettings& settings, const Take& take) {
  const auto decoder = settings.view().find("added_tokens_decoder");
  if (!decoder) return;
  for (const auto& [key, value] : decoder->object().items()) {
    const bool is_number = !key.empty() && key.size() < 9 && key.find_first_not_of("0123456789") == std::string::npos;
    if (is_number) take(JsonView(value, decoder->place() + "." + key).at("content").text(), std::stoll(key));
  }
}

json added_entry(const std::string& content, const json& id, const DirectorySettings& settings) {
  const bool is_special = settings.is_special(content);
  return {{"id", id}, {"content", content}, {"special", is_special}, {"normalized", !is_special}};
}

// Nothing if the model of a tokenizer.json has no such token.
std::optional<std::int64_t> model_id(const json& vocabulary, const std::string& token) {
  if (vocabulary.is_object() && vocabulary.contains(token) && vocabulary[token].is_number_integer())
    return vocabulary[token].get<std::int64_t>();
  if (!vocabulary.is_array()) return {};
  const auto found = std::ranges::find_if(
      vocabulary, [&](const json& piece) { return piece.is_array() && !piece.empty() && piece[0] == token; });
  return found == vocabulary.end() ? std::nullopt : std::optional<std::int64_t>(found - vocabulary.begin());
}

std::int64_t next_id(const json& vocabulary, const json& added, const DirectorySettings& settings) {
  const std::int64_t limit = token_id_limit(vocabulary.size() + added.size());
  auto next = static_cast<std::int64_t>(vocabulary.size());
  const auto take = [&](const json& id) {
    if (is_count(id, limit)) next = std::max(next, id.get<std::int64_t>() + 1);
  };
  if (vocabulary.is_object())
    for (const json& id : vocabulary) take(id);
  for (const json& token : added)
    if (token.is_object() && token.contains("id")) take(token["id"]);
  visit_decoder(settings, [&](const std::string&, std::int64_t id) { take(id); });
  return next;
}

// The added tokens and special tokens of the files next to a tokenizer.json, in the order of transformers.
std::vector<json> directory_tokens(const DirectorySettings& settings, std::size_t vocabulary) {
  std::vector<json> tokens;
  if (!settings.has_decoder()) {
    const json added = read_added_json(settings.path.parent_path(), vocabulary);
    for (const auto& [content, id] : added.items()) tokens.push_back(added_entry(content, id, settings));
    std::ranges::stable_sort(tokens, {}, [](const json& token) { return token["id"].get<std::int64_t>(); });
  }
  for (const char* key : kNamedTokens)
    if (const auto token = settings.view().find(key)) tokens.push_back(special_entry(*token, nullptr));
  for (const JsonView& token : settings.extra_tokens()) tokens.push_back(special_entry(token, nullptr));
  return tokens;
}

}  // namespace

DirectorySettings::DirectorySettings(const fs::path& folder)
    : path(folder / "tokenizer_config.json"),
      config(path_exists(path) ? read_json_file(path, kMostTokenizerBytes) : json::object()) {
  const auto found = view().find("tokenizer_class");
  if (found) name = found->text();
  if (name.ends_with("TokenizerFast")) name.resize(name.size() - 4);
  if (name.ends_with("Tokenizer")) name.resize(name.size() - 9);
  const fs::path file = folder / "special_tokens_map.json";
  if (has_decoder() || !path_exists(file)) return;
  const json map = read_json_file(file, kMostTokenizerBytes);
  for (const auto& [key, value] : JsonView(map, file.string()).object().items())
    if (!value.is_null() && (key.ends_with("_token") || key.ends_with("_special_tokens"))) config[key] = value;
}

std::string DirectorySettings::token(const char* key, const std::string& otherwise) const {
  const auto found = view().find(key);
  return found ? token_content(*found) : otherwise;
}

std::vector<JsonView> DirectorySettings::extra_tokens() const {
  std::vector<JsonView> tokens;
  for (const char* key : {"extra_special_tokens", "additional_special_tokens"}) {
    const auto listed = view().find(key);
    if (!tokens.empty() || !listed || !listed->json().is_structured()) continue;
    for (const json& token : listed->json()) {
      const bool has_content = token.is_object() && token.contains("content") && token["content"].is_string();
      if (token.is_string() || has_content) tokens.emplace_back(token, listed->place());
    }
  }
  return tokens;
}

bool DirectorySettings::is_special(const std::string& content) const {
  const auto is_same = [&](const JsonView& token) { return token_content(token) == content; };
  const auto is_named = [&](const char* key) { return token(key, "") == content; };
  return std::ranges::any_of(kNamedTokens, is_named) || std::ranges::any_of(extra_tokens(), is_same);
}

json special_entry(const JsonView& token, const json& id) {
  json entry = {{"id", id}, {"content", token_content(token)}, {"special", true}, {"normalized", false}};
  if (token.json().is_object())
    for (const char* flag : {"lstrip", "rstrip", "single_word", "normalized"}) entry[flag] = token.flag_or(flag, false);
  return entry;
}

json add_directory_tokens(json file, const DirectorySettings& settings) {
  const bool has_model = file.is_object() && file.contains("model") && file["model"].is_object();
  if (!has_model || !file["model"].contains("vocab")) return file;
  const json& vocabulary = file["model"]["vocab"];
  json added = file.value("added_tokens", json());
  if (added.is_null()) added = json::array();
  if (!vocabulary.is_structured() || !added.is_array()) return file;
  json known = json::object();
  visit_decoder(settings, [&](const std::string& token, std::int64_t id) { known.emplace(token, id); });
  std::optional<std::int64_t> next;
  for (json& token : directory_tokens(settings, vocabulary.size())) {
    const std::string content = token["content"];
    if (content.empty() || known.contains(content) || has_content(added, content)) continue;
    auto id = model_id(vocabulary, content);
    if (!id) {
      if (!next) next = next_id(vocabulary, added, settings);
      id = (*next)++;
    }
    token["id"] = *id;
    added.push_back(std::move(token));
  }
  file["added_tokens"] = std::move(added);
  return file;
}

json ids_with_added(const json& file, const DirectorySettings& settings) {
  json ids = file.at("model").at("vocab");
  for (const json& token : file.at("added_tokens")) ids.emplace(token.at("content"), token.at("id"));
  visit_decoder(settings, [&](const std::string& token, std::int64_t id) { ids.emplace(token, id); });
  return ids;
}

}  // namespace gantry
