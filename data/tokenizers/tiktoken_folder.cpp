// A directory that has tiktoken's ranks and no tokenizer.json: converted to a tokenizer.json with the same ids.
#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <nlohmann/json.hpp>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/tokenizers/byte_level.h"
#include "gantry/data/tokenizers/special_tokens.h"
#include "gantry/data/tokenizers/text_pattern.h"
#include "gantry/data/tokenizers/tiktoken_file.h"
#include "gantry/data/tokenizers/tokenizer_files.h"
#include "gantry/data/tokenizers/vocabulary.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

using IdNames = std::vector<std::pair<std::int64_t, std::string>>;

constexpr const char* kCl100kPattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
constexpr const char* kLlama3Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwenSplit =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kKimiPattern =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Consecutive ids from `id` for `names`, then for `count` tokens of the form `form`, numbered from `number`.
IdNames numbered_names(std::int64_t id, const std::vector<std::string>& names, const std::string& form,
                       std::int64_t number, std::int64_t count) {
  IdNames made;
  for (const auto& name : names) made.emplace_back(id++, name);
  for (std::int64_t i = 0; i < count; ++i) made.emplace_back(id++, fmt::format(fmt::runtime(form), number + i));
  return made;
}

// The names are those of Llama 3.1, which renamed some of the reserved tokens of Llama 3.
IdNames llama3_specials() {
  return numbered_names(128000,
                        {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
                         "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>",
                         "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"},
                        "<|reserved_special_token_{}|>", 3, 245);
}

// A tokenizer. The published ones are recognized by their number of ranks.
struct KnownTiktoken {
  std::size_t ranks = 0;
  std::string pattern;
  IdNames specials = {};
  std::string begin = {}, end = {};  // special tokens
  bool begins_texts = false;         // the begin token is put before a text
  bool composes = false;             // NFC before the pattern
};

std::vector<KnownTiktoken> known_tiktokens() {
  const std::string end = "<|endoftext|>";
  return {{.ranks = 50256, .pattern = kGpt2Pattern, .specials = {{50256, end}}, .end = end},  // r50k_base
          {.ranks = 100256,                                                                   // cl100k_base
           .pattern = kCl100kPattern,
           .specials = {{100257, end},
                        {100258, "<|fim_prefix|>"},
                        {100259, "<|fim_middle|>"},
                        {100260, "<|fim_suffix|>"},
                        {100276, "<|endofprompt|>"}},
           .end = end},
          {.ranks = 128000,
           .pattern = kLlama3Split,
           .specials = llama3_specials(),
           .begin = "<|begin_of_text|>",
           .end = "<|end_of_text|>",
           .begins_texts = true},
          {.ranks = 151643,  // Qwen 1
           .pattern = kQwenSplit,
           .specials = numbered_names(151643, {end, "<|im_start|>", "<|im_end|>"}, "<|extra_{}|>", 0, 205),
           .end = end,
           .composes = true},
          {.ranks = 163584,  // Kimi K2
           .pattern = kKimiPattern,
           .specials = numbered_names(163584, {}, "<|reserved_token_{}|>", 163584, 256),
           .begin = "[BOS]",
           .end = "[EOS]"},
          {.ranks = 199998,  // o200k_base
           .pattern = kO200kPattern,
           .specials = {{199999, end}, {200018, "<|endofprompt|>"}},
           .end = end}};
}

// `settings`: tokenizer_config.json. Its pat_str describes a tokenizer that is not one of the published ones.
KnownTiktoken tiktoken_of(std::size_t ranks, const JsonView& settings, const fs::path& path) {
  if (const auto pattern = settings.find("pat_str")) return {.ranks = ranks, .pattern = pattern->text()};
  std::vector<KnownTiktoken> known = known_tiktokens();
  const auto found = std::ranges::find(known, ranks, &KnownTiktoken::ranks);
  if (found != known.end()) return std::move(*found);
  throw InputError(
      {path.string(),
       fmt::format("the file has {} ranks, which no known tokenizer has, and it does not contain the "
                   "pattern that splits text",
                   ranks),
       "pat_str in tokenizer_config.json, or the ranks of r50k_base (50256), cl100k_base (100256), Llama 3 "
       "(128000), Qwen (151643), Kimi K2 (163584) or o200k_base (199998)",
       "add pat_str, or convert the file to tokenizer.json with transformers' convert_tiktoken_to_fast"});
}

Vocabulary spell_tokens(const std::vector<std::string>& tokens) {
  Vocabulary vocabulary;
  for (const auto& token : tokens) {
    vocabulary.ids.emplace(spelling_of(token), static_cast<std::int32_t>(vocabulary.tokens.size()));
    vocabulary.tokens.push_back(spelling_of(token));
  }
  return vocabulary;
}

// tiktoken has no merges: it joins the two neighbours whose joined bytes have the lowest rank. Here every split of a
// token into two tokens is a merge, in order of the token's rank, as in Llama 3's tokenizer.json. The result is exact
// for all ranks, because only one split of a token can occur as neighbours: the state before the last step of
// tiktoken's merges of the token's own bytes. Hence merges of equal results never compete, and the leftmost lowest rank
// is joined.
json merges_by_rank(const Vocabulary& vocabulary) {
  json merges = json::array();
  for (const std::string& token : vocabulary.tokens)
    for (std::size_t split = utf8_length(token[0]); split < token.size(); split += utf8_length(token[split])) {
      const std::string left = token.substr(0, split), right = token.substr(split);
      if (vocabulary.id_of(left) && vocabulary.id_of(right)) merges.push_back(fmt::format("{} {}", left, right));
    }
  return merges;
}

void add_next(std::vector<AddedToken>& added, const JsonView& token, const Vocabulary& vocabulary) {
  const std::string& content = token_content(token);
  if (find_token(added, vocabulary, content)) return;
  auto next = static_cast<std::int64_t>(vocabulary.tokens.size());
  for (const AddedToken& each : added) next = std::max(next, each.id + 1);
  put_added(added, {.id = next, .content = content, .is_special = true}, vocabulary, token.place());
}

// Tokens of added_tokens.json that tokenizer_config.json does not have.
void add_listed(const fs::path& path, const Vocabulary& vocabulary, std::vector<AddedToken>& added) {
  if (!path_exists(path)) return;
  const json file = read_json_file(path, kMostTokenizerBytes);
  const std::int64_t limit = token_id_limit(vocabulary.ids.size() + file.size());
  for (const auto& [content, id] : JsonView(file, path.string()).object().items()) {
    const JsonView view(id, fmt::format("{}: '{}'", path.string(), content));
    if (!find_token(added, vocabulary, content))
      put_added(added, {.id = view.count(limit), .content = content, .is_special = true}, vocabulary, view.place());
  }
}

// The tokens of the directory's files, then the known ones whose id and name are free. The tokens that only have a name
// get the next ids in transformers' order.
std::vector<AddedToken> added_tokens_of(const KnownTiktoken& kind, const JsonView& settings, const fs::path& folder,
                                        const Vocabulary& vocabulary) {
  std::vector<AddedToken> added;
  read_added_decoder(settings, vocabulary, added);
  add_listed(folder / "added_tokens.json", vocabulary, added);
  for (const auto& [id, content] : kind.specials)
    if (std::ranges::find(added, id, &AddedToken::id) == added.end() && !find_token(added, vocabulary, content))
      added.push_back({.id = id, .content = content, .is_special = true});
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"})
    if (const auto list = settings.find(key); list && list->json().is_array())
      for (std::size_t i = 0; i < list->list().size(); ++i) add_next(added, list->element(i), vocabulary);
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (const auto token = settings.find(key)) add_next(added, *token, vocabulary);
  return added;
}

json added_json(const std::vector<AddedToken>& added) {
  json list = json::array();
  for (const AddedToken& token : added)
    list.push_back(
        {{"id", token.id}, {"content", token.content}, {"special", token.is_special}, {"normalized", false}});
  return list;
}

json begin_template(std::int64_t begin) {
  const json token = {{"SpecialToken", {{"id", "begin"}, {"type_id", 0}}}};
  const auto text = [](const char* name, int type) { return json{{"Sequence", {{"id", name}, {"type_id", type}}}}; };
  return {{"type", "TemplateProcessing"},
          {"single", {token, text("A", 0)}},
          {"pair", {token, text("A", 0), token, text("B", 1)}},
          {"special_tokens", {{"begin", {{"ids", {begin}}}}}}};
}

}  // namespace

ConvertedTokenizer convert_tiktoken(const fs::path& path) {
  const fs::path config_path = path.parent_path() / "tokenizer_config.json";
  const json config = path_exists(config_path) ? read_json_file(config_path, kMostTokenizerBytes) : json::object();
  const JsonView settings(config, config_path.string());
  const Vocabulary vocabulary = spell_tokens(read_tiktoken_file(path));
  const KnownTiktoken kind = tiktoken_of(vocabulary.tokens.size(), settings, path);
  const auto added = added_tokens_of(kind, settings, path.parent_path(), vocabulary);
  json ids = json::object();
  for (const auto& [token, id] : vocabulary.ids) ids[token] = id;
  const std::string pattern = oniguruma_pattern(kind.pattern, config_path.string() + ".pat_str");
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  ConvertedTokenizer made{
      .file = {{"added_tokens", added_json(added)},
               {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}},
               {"decoder", {{"type", "ByteLevel"}}},
               {"model",
                {{"type", "BPE"},
                 {"ignore_merges", true},  // a piece that is a token is not merged
                 {"merges", merges_by_rank(vocabulary)},
                 {"vocab", std::move(ids)}}}},
      .path = path,
      .special = {.begin = find_token(added, vocabulary, kind.begin), .end = find_token(added, vocabulary, kind.end)}};
  if (kind.composes) made.file["normalizer"] = {{"type", "NFC"}};
  if (kind.begins_texts && made.special.begin) made.file["post_processor"] = begin_template(*made.special.begin);
  return made;
}

}  // namespace gantry
