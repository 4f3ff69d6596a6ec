// Converts vocab.json with merges.txt, and vocab.txt.
#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/tokenizers/directory_tokens.h"
#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/special_tokens.h"
#include "gantry/data/tokenizers/text_pattern.h"
#include "gantry/data/tokenizers/tokenizer_files.h"
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

// A special token of a class: a role, its key, and the text that it has if the settings do not name it.
struct NamedSpecial {
  const char* key;
  std::string content;
  std::optional<std::int64_t> SpecialTokenIds::*role = nullptr;
};

// Added tokens for those that the vocabulary has.
void add_specials(const std::vector<NamedSpecial>& specials, const DirectorySettings& settings, const json& ids,
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
    const auto listed = std::ranges::find_if(added, [&](const json& each) { return each["content"] == content; });
    if (listed == added.end())
      added.push_back(special_entry(token, *id));
    else
      *listed = special_entry(token, *id);
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

void be_gpt2(const DirectorySettings& settings, const json& ids, ConvertedTokenizer& made) {
  const std::string end = "<|endoftext|>";
  add_specials({{"bos_token", end, &Role::begin},
                {"eos_token", end, &Role::end},
                {"unk_token", end, &Role::unknown},
                {"pad_token", "", &Role::padding}},
               settings, ids, made);
}

void be_roberta(const DirectorySettings& settings, const json& ids, ConvertedTokenizer& made) {
  add_specials({{"bos_token", "<s>", &Role::begin},
                {"eos_token", "</s>", &Role::end},
                {"sep_token", "</s>"},
                {"cls_token", "<s>"},
                {"unk_token", "<unk>", &Role::unknown},
                {"pad_token", "<pad>", &Role::padding},
                {"mask_token", "<mask>"}},
               settings, ids, made);
  made.follows_flags = false;
  made.file["post_processor"] = class_and_separator("RobertaProcessing", settings.token("cls_token", "<s>"),
                                                    settings.token("sep_token", "</s>"), ids);
}

void be_whisper(const DirectorySettings& settings, const json& ids, ConvertedTokenizer& made) {
  be_gpt2(settings, ids, made);
  made.follows_flags = false;
  made.file["post_processor"] = known_template({"<|startoftranscript|>", "<|notimestamps|>"},
                                               {settings.token("eos_token", "<|endoftext|>")}, ids);
}

void be_clip(const DirectorySettings& settings, const json& ids, ConvertedTokenizer& made) {
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
  made.follows_flags = false;
  file["post_processor"] = known_template({begin}, {end}, ids);
}

void be_qwen2(const DirectorySettings& settings, const json& ids, ConvertedTokenizer& made) {
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

}  // namespace

ConvertedTokenizer convert_vocab_json(const fs::path& folder) {
  using Be = void (*)(const DirectorySettings&, const json&, ConvertedTokenizer&);
  constexpr std::pair<const char*, Be> kClasses[] = {
      {"", be_gpt2},     {"GPT2", be_gpt2},       {"CodeGen", be_gpt2}, {"Roberta", be_roberta},
      {"CLIP", be_clip}, {"Whisper", be_whisper}, {"Qwen2", be_qwen2}};
  const DirectorySettings settings(folder);
  const auto* found = std::find_if(std::begin(kClasses), std::end(kClasses),
                                   [&](const auto& each) { return settings.name == each.first; });
  if (found == std::end(kClasses))
    settings.view()
        .at("tokenizer_class")
        .refuse("a class whose vocab.json and merges.txt can be read: GPT2, CodeGen, Roberta, CLIP, Whisper or Qwen2",
                "save the tokenizer with transformers, which writes a tokenizer.json");
  const json ids = read_json_file(folder / "vocab.json", kMostTokenizerBytes);
  JsonView(ids, (folder / "vocab.json").string()).object();
  const bool add_prefix_space = settings.view().flag_or("add_prefix_space", false);
  const json merges = read_merges_txt(folder / "merges.txt");
  ConvertedTokenizer made{.file = {{"added_tokens", json::array()},
                                   {"pre_tokenizer", byte_level(add_prefix_space, true)},
                                   {"decoder", {{"type", "ByteLevel"}}},
                                   {"model", {{"type", "BPE"}, {"merges", merges}, {"vocab", ids}}}},
                          .path = folder / "vocab.json"};
  made.file = add_directory_tokens(std::move(made.file), settings);
  found->second(settings, ids_with_added(made.file, settings), made);
  return made;
}

ConvertedTokenizer convert_vocab_txt(const fs::path& path) {
  const DirectorySettings settings(path.parent_path());
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
               {"model", {{"type", "WordPiece"}, {"unk_token", settings.token("unk_token", "[UNK]")}, {"vocab", ids}}}},
      .path = path,
      .follows_flags = false};
  made.file = add_directory_tokens(std::move(made.file), settings);
  const json known = ids_with_added(made.file, settings);
  add_specials({{"cls_token", "[CLS]", &Role::begin},
                {"sep_token", "[SEP]", &Role::end},
                {"pad_token", "[PAD]", &Role::padding},
                {"unk_token", "[UNK]", &Role::unknown},
                {"mask_token", "[MASK]"}},
               settings, known, made);
  made.file["post_processor"] = class_and_separator("BertProcessing", settings.token("cls_token", "[CLS]"),
                                                    settings.token("sep_token", "[SEP]"), known);
  return made;
}

}  // namespace gantry
