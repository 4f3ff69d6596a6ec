#include "gantry/data/tokenizers/tokenizer_files.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/special_tokens.h"
#include "gantry/data/tokenizers/text_pattern.h"
#include "gantry/data/tokenizers/vocabulary.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kQwen2Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kClipSplit =
    R"(<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)";

std::vector<std::string> lines_of(const fs::path& path) {
  const std::string bytes = read_bytes(path, kMostTokenizerBytes);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
    const bool has_return = end > at && bytes[end - 1] == '\r';
    lines.push_back(bytes.substr(at, end - at - (has_return ? 1 : 0)));
    if (valid_utf8_prefix(lines.back()) < lines.back().size())
      throw InputError({fmt::format("{}:{}", path.string(), lines.size()), "the token is not valid UTF-8",
                        "one token per line", ""});
    at = end + 1;
  }
  return lines;
}

constexpr const char* kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};

// tokenizer_config.json of a directory and the class that it names.
struct Settings {
  explicit Settings(const fs::path& folder)
      : path(folder / "tokenizer_config.json"),
        config(path_exists(path) ? read_json_file(path, kMostTokenizerBytes) : json::object()) {
    const auto found = view().find("tokenizer_class");
    if (found) name = found->text();
    if (name.ends_with("TokenizerFast")) name.resize(name.size() - 4);
    if (name.ends_with("Tokenizer")) name.resize(name.size() - 9);
    if (!has_decoder()) read_tokens_map(folder / "special_tokens_map.json");
  }
  // True if added_tokens_decoder lists the added tokens. transformers then reads neither special_tokens_map.json nor
  // added_tokens.json.
  bool has_decoder() const { return view().find("added_tokens_decoder").has_value(); }
  JsonView view() const { return {config, path.string()}; }
  std::string token(const char* key, const std::string& otherwise) const {
    const auto found = view().find(key);
    return found ? token_content(*found) : otherwise;
  }
  // The entries of extra_special_tokens or, in older files, of additional_special_tokens: texts, and objects with a
  // content.
  std::vector<JsonView> extra_tokens() const {
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
  bool is_special(const std::string& content) const {
    const auto is_same = [&](const JsonView& token) { return token_content(token) == content; };
    const auto is_named = [&](const char* key) { return token(key, "") == content; };
    return std::ranges::any_of(kNamedTokens, is_named) || std::ranges::any_of(extra_tokens(), is_same);
  }

  void read_tokens_map(const fs::path& file) {
    if (!path_exists(file)) return;
    const json map = read_json_file(file, kMostTokenizerBytes);
    for (const auto& [key, value] : JsonView(map, file.string()).object().items())
      if (!value.is_null() && (key.ends_with("_token") || key.ends_with("_special_tokens"))) config[key] = value;
  }

  fs::path path;
  json config;
  std::string name;  // without "Tokenizer" or "TokenizerFast"
};

// A special token of a class: a role, its key, and the text that it has if the settings do not name it.
struct NamedSpecial {
  const char* key;
  std::string content;
  std::optional<std::int64_t> SpecialTokenIds::*role = nullptr;
};

// An entry of added_tokens for a special token. `token`: its text, or an object with its content and settings.
json special_entry(const JsonView& token, const json& id) {
  json entry = {{"id", id}, {"content", token_content(token)}, {"special", true}, {"normalized", false}};
  if (token.json().is_object())
    for (const char* flag : {"lstrip", "rstrip", "single_word", "normalized"}) entry[flag] = token.flag_or(flag, false);
  return entry;
}

bool has_content(const json& added, const std::string& content) {
  return std::ranges::any_of(added, [&](const json& token) {
    return token.is_object() && token.contains("content") && token["content"] == content;
  });
}

// Added tokens for those that the vocabulary has.
void add_specials(const std::vector<NamedSpecial>& specials, const Settings& settings, const json& ids,
                  ConvertedTokenizer& made) {
  json& added = made.file["added_tokens"];
  for (const auto& [key, otherwise, role] : specials) {
    const auto stated = settings.view().find(key);
    const json usual = otherwise;
    const JsonView token = stated.value_or(JsonView(usual, key));
    const std::string& content = token_content(token);
    const auto id = ids.find(content);
    if (content.empty() || id == ids.end()) continue;
    if (role) made.special.*role = id->get<std::int64_t>();
    if (!has_content(added, content)) added.push_back(special_entry(token, *id));
  }
}

json template_around(const json& before, const json& after, const json& ids) {
  json single = json::array(), special = json::object();
  const auto append = [&](const json& tokens) {
    for (const auto& token : tokens) {
      single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
      special[token.get<std::string>()] = {{"ids", json::array({ids.at(token.get<std::string>())})}};
    }
  };
  append(before);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  append(after);
  return {{"type", "TemplateProcessing"}, {"single", std::move(single)}, {"special_tokens", std::move(special)}};
}

// The template with those of its tokens that the vocabulary has; null if it has none of them.
json known_template(std::vector<std::string> before, std::vector<std::string> after, const json& ids) {
  const auto is_missing = [&](const std::string& token) { return !ids.contains(token); };
  std::erase_if(before, is_missing);
  std::erase_if(after, is_missing);
  return before.empty() && after.empty() ? json() : template_around(before, after, ids);
}

// [CLS] and [SEP] around one text and between two, by the processor of BERT or RoBERTa.
json class_and_separator(const char* processor, const std::string& begin, const std::string& end, const json& ids) {
  if (!ids.contains(begin) || !ids.contains(end)) return known_template({begin}, {end}, ids);
  return {{"type", processor}, {"cls", {begin, ids.at(begin)}}, {"sep", {end, ids.at(end)}}};
}

json byte_level(bool add_prefix_space, bool uses_pattern) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"use_regex", uses_pattern}};
}

json split_step(const char* pattern, const char* behavior, bool inverted) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", inverted}};
}

json sequence(const char* name, json steps) { return {{"type", "Sequence"}, {name, std::move(steps)}}; }

using Role = SpecialTokenIds;

void be_gpt2(const Settings& settings, const json& ids, ConvertedTokenizer& made) {
  const std::string end = "<|endoftext|>";
  add_specials({{"bos_token", end, &Role::begin},
                {"eos_token", end, &Role::end},
                {"unk_token", end, &Role::unknown},
                {"pad_token", "", &Role::padding}},
               settings, ids, made);
}

void be_roberta(const Settings& settings, const json& ids, ConvertedTokenizer& made) {
  add_specials({{"bos_token", "<s>", &Role::begin},
                {"eos_token", "</s>", &Role::end},
                {"sep_token", "</s>"},
                {"cls_token", "<s>"},
                {"unk_token", "<unk>", &Role::unknown},
                {"pad_token", "<pad>", &Role::padding},
                {"mask_token", "<mask>"}},
               settings, ids, made);
  made.file["post_processor"] = class_and_separator("RobertaProcessing", settings.token("cls_token", "<s>"),
                                                    settings.token("sep_token", "</s>"), ids);
}

void be_whisper(const Settings& settings, const json& ids, ConvertedTokenizer& made) {
  be_gpt2(settings, ids, made);
  made.file["post_processor"] = known_template({"<|startoftranscript|>", "<|notimestamps|>"},
                                               {settings.token("eos_token", "<|endoftext|>")}, ids);
}

void be_clip(const Settings& settings, const json& ids, ConvertedTokenizer& made) {
  const std::string begin = settings.token("bos_token", "<|startoftext|>");
  const std::string end = settings.token("eos_token", "<|endoftext|>");
  add_specials({{"bos_token", begin, &Role::begin},
                {"eos_token", end, &Role::end},
                {"unk_token", "<|endoftext|>", &Role::unknown},
                {"pad_token", "<|endoftext|>", &Role::padding}},
               settings, ids, made);
  json& file = made.file;
  file["normalizer"] =
      sequence("normalizers", {{{"type", "NFC"}},
                               {{"type", "Replace"}, {"pattern", {{"Regex", R"(\s+)"}}}, {"content", " "}},
                               {{"type", "Lowercase"}}});
  file["pre_tokenizer"] = sequence("pretokenizers", {split_step(kClipSplit, "Removed", true), byte_level(false, true)});
  file["model"]["end_of_word_suffix"] = "</w>";
  if (const std::string unknown = settings.token("unk_token", "<|endoftext|>"); ids.contains(unknown))
    file["model"]["unk_token"] = unknown;
  // transformers replaces the suffix in the decoded text and removes blanks around it.
  file["decoder"] = sequence("decoders", {{{"type", "ByteLevel"}},
                                          {{"type", "Replace"}, {"pattern", {{"String", "</w>"}}}, {"content", " "}},
                                          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 1}}});
  file["post_processor"] = known_template({begin}, {end}, ids);
}

void be_qwen2(const Settings& settings, const json& ids, ConvertedTokenizer& made) {
  const std::string end = "<|endoftext|>";
  add_specials({{"eos_token", end, &Role::end}, {"unk_token", end, &Role::unknown}, {"pad_token", end, &Role::padding}},
               settings, ids, made);
  const bool add_prefix_space = settings.view().flag_or("add_prefix_space", false);
  made.file["normalizer"] = {{"type", "NFC"}};
  made.file["pre_tokenizer"] =
      sequence("pretokenizers", {split_step(kQwen2Split, "Isolated", false), byte_level(add_prefix_space, false)});
}

json read_merges_txt(const fs::path& path) {
  json merges = json::array();
  for (const auto& line : lines_of(path))
    if (!line.starts_with("#version") && !line.empty()) merges.push_back(line);
  return merges;
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
void visit_decoder(const Settings& settings, const Take& take) {
  const auto decoder = settings.view().find("added_tokens_decoder");
  if (!decoder) return;
  for (const auto& [key, value] : decoder->object().items()) {
    const bool is_number = !key.empty() && key.size() < 9 && key.find_first_not_of("0123456789") == std::string::npos;
    if (is_number) take(JsonView(value, decoder->place() + "." + key).at("content").text(), std::stoll(key));
  }
}

// The vocabulary with the added tokens. A token of the vocabulary keeps its id.
json with_added(json ids, const Settings& settings, const json& added) {
  for (const auto& [token, id] : added.items()) ids.emplace(token, id);
  visit_decoder(settings, [&](const std::string& token, std::int64_t id) { ids.emplace(token, id); });
  return ids;
}

json added_entry(const std::string& content, const json& id, const Settings& settings) {
  const bool is_special = settings.is_special(content);
  return {{"id", id}, {"content", content}, {"special", is_special}, {"normalized", !is_special}};
}

void put_added_json(const json& tokens, const Settings& settings, json& added) {
  for (const auto& [content, id] : tokens.items())
    if (!has_content(added, content)) added.push_back(added_entry(content, id, settings));
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

std::int64_t next_id(const json& vocabulary, const json& added, const Settings& settings) {
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
std::vector<json> directory_tokens(const Settings& settings, const fs::path& folder, std::size_t vocabulary) {
  std::vector<json> tokens;
  if (!settings.has_decoder()) {
    const json added = read_added_json(folder, vocabulary);
    for (const auto& [content, id] : added.items()) tokens.push_back(added_entry(content, id, settings));
    std::ranges::stable_sort(tokens, {}, [](const json& token) { return token["id"].get<std::int64_t>(); });
  }
  for (const char* key : kNamedTokens)
    if (const auto token = settings.view().find(key)) tokens.push_back(special_entry(*token, nullptr));
  for (const JsonView& token : settings.extra_tokens()) tokens.push_back(special_entry(token, nullptr));
  return tokens;
}

}  // namespace

ConvertedTokenizer convert_vocab_json(const fs::path& folder) {
  using Be = void (*)(const Settings&, const json&, ConvertedTokenizer&);
  constexpr std::pair<const char*, Be> kClasses[] = {
      {"", be_gpt2},     {"GPT2", be_gpt2},       {"CodeGen", be_gpt2}, {"Roberta", be_roberta},
      {"CLIP", be_clip}, {"Whisper", be_whisper}, {"Qwen2", be_qwen2}};
  const Settings settings(folder);
  const auto* found = std::find_if(std::begin(kClasses), std::end(kClasses),
                                   [&](const auto& each) { return settings.name == each.first; });
  if (found == std::end(kClasses))
    settings.view()
        .at("tokenizer_class")
        .refuse("a class whose vocab.json and merges.txt can be read: GPT2, CodeGen, Roberta, CLIP, Whisper or Qwen2",
                "save the tokenizer with transformers, which writes a tokenizer.json");
  const json ids = read_json_file(folder / "vocab.json", kMostTokenizerBytes);
  JsonView(ids, (folder / "vocab.json").string()).object();
  const json added = read_added_json(folder, ids.size());
  const bool add_prefix_space = settings.view().flag_or("add_prefix_space", false);
  ConvertedTokenizer made{.file = {{"added_tokens", json::array()},
                                   {"pre_tokenizer", byte_level(add_prefix_space, true)},
                                   {"decoder", {{"type", "ByteLevel"}}},
                                   {"model", {{"type", "BPE"}, {"merges", read_merges_txt(folder / "merges.txt")}}}},
                          .path = folder / "vocab.json"};
  found->second(settings, with_added(ids, settings, added), made);
  made.file["model"]["vocab"] = ids;
  put_added_json(added, settings, made.file["added_tokens"]);
  return made;
}

ConvertedTokenizer convert_vocab_txt(const fs::path& path) {
  const Settings settings(path.parent_path());
  constexpr const char* kLikeBert[] = {"",         "Bert",     "DistilBert",  "Electra",   "MobileBert",
                                       "ConvBert", "LayoutLM", "SqueezeBert", "PreTrained"};
  if (std::ranges::find(kLikeBert, settings.name) == std::end(kLikeBert))
    settings.view()
        .at("tokenizer_class")
        .refuse("a class that reads vocab.txt like BERT",
                "save the tokenizer with transformers, which writes a tokenizer.json");
  json ids = json::object();
  const auto lines = lines_of(path);
  for (std::size_t i = 0; i < lines.size(); ++i) ids[lines[i]] = i;
  const json added = read_added_json(path.parent_path(), ids.size()), known = with_added(ids, settings, added);
  const bool lower_case = settings.view().flag_or("do_lower_case", true);
  ConvertedTokenizer made{
      .file = {{"added_tokens", json::array()},
               {"normalizer",
                {{"type", "BertNormalizer"},
                 {"lowercase", lower_case},
                 {"strip_accents", settings.view().flag_or("strip_accents", lower_case)},
                 {"handle_chinese_chars", settings.view().flag_or("tokenize_chinese_chars", true)}}},
               {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
               {"decoder", {{"type", "WordPiece"}}},
               {"model", {{"type", "WordPiece"}, {"unk_token", settings.token("unk_token", "[UNK]")}}}},
      .path = path};
  add_specials({{"cls_token", "[CLS]", &Role::begin},
                {"sep_token", "[SEP]", &Role::end},
                {"pad_token", "[PAD]", &Role::padding},
                {"unk_token", "[UNK]", &Role::unknown},
                {"mask_token", "[MASK]"}},
               settings, known, made);
  made.file["post_processor"] = class_and_separator("BertProcessing", settings.token("cls_token", "[CLS]"),
                                                    settings.token("sep_token", "[SEP]"), known);
  made.file["model"]["vocab"] = std::move(ids);
  put_added_json(added, settings, made.file["added_tokens"]);
  return made;
}

json add_directory_tokens(json file, const fs::path& folder) {
  const bool has_model = file.is_object() && file.contains("model") && file["model"].is_object();
  if (!has_model || !file["model"].contains("vocab")) return file;
  const json& vocabulary = file["model"]["vocab"];
  json added = file.value("added_tokens", json());
  if (added.is_null()) added = json::array();
  if (!vocabulary.is_structured() || !added.is_array()) return file;
  const Settings settings(folder);
  json known = json::object();
  visit_decoder(settings, [&](const std::string& token, std::int64_t id) { known.emplace(token, id); });
  std::optional<std::int64_t> next;
  for (json& token : directory_tokens(settings, folder, vocabulary.size())) {
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

}  // namespace gantry
