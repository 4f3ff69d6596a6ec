// Reading byte-level BPE from tokenizer.json, or from vocab.json and merges.txt. The files are not trusted.
#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/core/paths.h"
#include "gantry/data/tokenizers/byte_pair_tokenizer.h"
#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/special_tokens.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uintmax_t kMostBytes = 512u << 20;      // the largest published ones have about 35 MB
constexpr const char* kGpt2Special = "<|endoftext|>";  // GPT-2's only special token
constexpr std::int64_t kMostIds = 1 << 24;

// The vocabulary while it is read: both ways between tokens and ids.
struct Vocabulary {
  TokenTable ids;
  std::vector<std::string> tokens;

  std::optional<std::int64_t> id_of(std::string_view token) const {
    const auto found = ids.find(token);
    return found == ids.end() ? std::nullopt : std::optional<std::int64_t>(found->second);
  }
};

// Ids may have gaps, but not so wide that a hostile file could fill the memory.
std::int64_t id_limit(std::size_t tokens) { return std::min(2 * static_cast<std::int64_t>(tokens) + 1024, kMostIds); }

Vocabulary read_vocabulary(const JsonView& view, std::size_t more) {
  Vocabulary vocabulary;
  const json& object = view.object();
  const std::int64_t limit = id_limit(object.size() + more);
  vocabulary.ids.reserve(object.size());
  for (const auto& [token, id] : object.items()) {
    const bool is_id = id.is_number_unsigned() && id.get<std::uint64_t>() < static_cast<std::uint64_t>(limit);
    if (!is_id || token.empty())
      JsonView(id, fmt::format("{}: '{}'", view.place(), token))
          .refuse(fmt::format("an id from 0 to {} of a token", limit - 1));
    const auto index = id.get<std::size_t>();
    if (index >= vocabulary.tokens.size()) vocabulary.tokens.resize(index + 1);
    if (!vocabulary.tokens[index].empty())
      throw InputError({view.place(),
                        fmt::format("gives id {} to '{}' and to '{}'", index, vocabulary.tokens[index], token),
                        "an id of its own for each", ""});
    vocabulary.tokens[index] = token;
    vocabulary.ids.emplace(token, static_cast<std::int32_t>(index));
  }
  return vocabulary;
}

Merge make_merge(const Vocabulary& vocabulary, std::string_view left, std::string_view right,
                 const std::string& place) {
  const std::string result = fmt::format("{}{}", left, right);
  const auto id = [&](std::string_view token) {
    const auto found = vocabulary.id_of(token);
    if (!found)
      throw InputError(
          {place, fmt::format("'{}' is no token of the vocabulary", token), "two tokens whose union is one too", ""});
    return static_cast<std::int32_t>(*found);
  };
  return {id(left), id(right), id(result)};
}

Merge parse_merge(const Vocabulary& vocabulary, std::string_view line, const std::string& place) {
  const std::size_t space = line.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string_view::npos)
    throw InputError({place, fmt::format("is '{}'", line), "two tokens with a space between them", ""});
  return make_merge(vocabulary, line.substr(0, space), line.substr(space + 1), place);
}

std::vector<Merge> read_merges(const JsonView& view, const Vocabulary& vocabulary) {
  std::vector<Merge> merges;
  const json& list = view.list();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", view.place(), i);
    if (list[i].is_string()) {
      merges.push_back(parse_merge(vocabulary, list[i].get_ref<const std::string&>(), place));
    } else {
      const JsonView pair(list[i], place);
      if (pair.list().size() != 2) pair.refuse("two tokens");
      merges.push_back(make_merge(vocabulary, pair.element(0).text(), pair.element(1).text(), place));
    }
  }
  return merges;
}

AddedToken read_added(const JsonView& view, std::int64_t id) {
  AddedToken token{.id = id, .content = view.at("content").text()};
  if (token.content.empty()) view.at("content").refuse("a token");
  token.single_word = view.flag_or("single_word", false);
  token.strip_left = view.flag_or("lstrip", false);
  token.strip_right = view.flag_or("rstrip", false);
  token.is_normalized = view.flag_or("normalized", !view.flag_or("special", false));
  return token;
}

// An added token that the vocabulary has too must have the same id there.
void check_added(const AddedToken& token, const Vocabulary& vocabulary, const std::string& place) {
  const auto index = static_cast<std::size_t>(token.id);
  const auto id = vocabulary.id_of(token.content);
  if (id && *id != token.id)
    throw InputError(
        {place, fmt::format("'{}' is {} here and {} in the vocabulary", token.content, token.id, *id), "one id", ""});
  if (!id && index < vocabulary.tokens.size() && !vocabulary.tokens[index].empty())
    throw InputError(
        {place,
         fmt::format("{} is '{}' here and '{}' in the vocabulary", token.id, token.content, vocabulary.tokens[index]),
         "one token", ""});
}

// "\p{N}" and its like of a Split step; the other ways to split are not of the byte-level kind.
SplitStep read_split(const JsonView& step) {
  const auto behavior = step.at("behavior");
  if (behavior.text() != "Isolated") behavior.refuse("\"Isolated\"", "the other ones are not supported");
  return {step.at("pattern").at("Regex").text()};
}

SplitStep read_step(const JsonView& step) {
  const auto type = step.at("type");
  if (type.text() == "Split") return read_split(step);
  if (type.text() == "Digits") return {step.flag_or("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)"};
  if (type.text() == "ByteLevel")
    return {step.flag_or("use_regex", true) ? kGpt2Pattern : "", step.flag_or("add_prefix_space", true)};
  type.refuse("Split, Digits or ByteLevel", "the other ones are not supported in a byte-level tokenizer");
}

// The steps of a pre_tokenizer, which may be a Sequence of them.
std::vector<JsonView> steps_of(const JsonView& pre_tokenizer) {
  if (pre_tokenizer.at("type").text() != "Sequence") return {pre_tokenizer};
  const JsonView list = pre_tokenizer.at("pretokenizers");
  std::vector<JsonView> steps;
  for (std::size_t i = 0; i < list.list().size(); ++i) steps.push_back(list.element(i));
  return steps;
}

bool is_byte_level(const JsonView& file, const JsonView& model) {
  const auto type = model.find("type");
  const auto pre_tokenizer = file.find("pre_tokenizer");
  if ((type && type->text() != "BPE") || !model.find("merges") || !pre_tokenizer) return false;
  const auto steps = steps_of(*pre_tokenizer);
  return std::any_of(steps.begin(), steps.end(),
                     [](const auto& step) { return step.at("type").text() == "ByteLevel"; });
}

void refuse_unsupported(const JsonView& file, const JsonView& model) {
  if (const auto normalizer = file.find("normalizer"))
    throw InputError({normalizer->place(), fmt::format("is {}", normalizer->at("type").text()),
                      "null, as of GPT-2 and Llama 3", "the other ones are not supported"});
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const auto value = model.find(key); value && !value->text().empty())
      value->refuse("null", "not supported in a byte-level tokenizer");
  if (const auto dropout = model.find("dropout"); dropout && dropout->json() != 0.0)
    dropout->refuse("null", "ids would be random");
}

void append_added(BytePairModel& model, AddedToken token, const Vocabulary& vocabulary, const std::string& place) {
  check_added(token, vocabulary, place);
  const bool is_known = std::any_of(model.added.begin(), model.added.end(),
                                    [&](const auto& each) { return each.content == token.content; });
  if (!is_known) model.added.push_back(std::move(token));
}

std::optional<std::int64_t> find_id(const BytePairModel& model, const Vocabulary& vocabulary,
                                    const std::string& token) {
  for (const auto& added : model.added)
    if (added.content == token) return added.id;
  return vocabulary.id_of(token);
}

}  // namespace

std::unique_ptr<BytePairModel> read_tokenizer_json(const fs::path& path) {
  return parse_tokenizer_json(read_bytes(path, kMostBytes), path);
}

std::unique_ptr<BytePairModel> parse_tokenizer_json(std::string_view text, const fs::path& path) {
  const json parsed = parse_json_text(text, path);
  const JsonView file(parsed, path.string());
  const JsonView model_view = file.at("model");
  if (!is_byte_level(file, model_view)) return nullptr;
  refuse_unsupported(file, model_view);
  auto model = std::make_unique<BytePairModel>();
  const auto added = file.find("added_tokens");
  const std::size_t added_count = added ? added->list().size() : 0;
  Vocabulary vocabulary = read_vocabulary(model_view.at("vocab"), added_count);
  const std::int64_t limit = id_limit(vocabulary.ids.size() + added_count);
  for (std::size_t i = 0; i < added_count; ++i) {
    const JsonView token = added->element(i);
    append_added(*model, read_added(token, token.at("id").count(limit)), vocabulary, token.place());
  }
  for (const auto& step : steps_of(file.at("pre_tokenizer"))) model->steps.push_back(read_step(step));
  model->merges = read_merges(model_view.at("merges"), vocabulary);
  model->ignore_merges = model_view.flag_or("ignore_merges", false);
  model->special =
      read_special_tokens(path.parent_path(), [&](const auto& token) { return find_id(*model, vocabulary, token); });
  model->tokens = std::move(vocabulary.tokens);
  return model;
}

namespace {

std::vector<Merge> read_merges_txt(const fs::path& path, const Vocabulary& vocabulary) {
  const std::string bytes = read_bytes(path, kMostBytes);
  std::vector<Merge> merges;
  int number = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
    std::string_view line = std::string_view(bytes).substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at = end + 1;
    ++number;
    if (line.starts_with("#version") || line.empty()) continue;
    merges.push_back(parse_merge(vocabulary, line, fmt::format("{}:{}", path.string(), number)));
  }
  return merges;
}

// tokenizer_config.json's added_tokens_decoder: {"50256": {"content": "<|endoftext|>", ...}, ...}
void read_decoder(const JsonView& config, const Vocabulary& vocabulary, BytePairModel& model) {
  const auto decoder = config.find("added_tokens_decoder");
  if (!decoder) return;
  const std::int64_t limit = id_limit(vocabulary.ids.size() + decoder->object().size());
  for (const auto& [key, value] : decoder->object().items()) {
    const JsonView token(value, fmt::format("{}.{}", decoder->place(), key));
    const bool is_number = !key.empty() && key.size() < 9 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number || std::stoll(key) >= limit)
      throw InputError({token.place(), "is no id", fmt::format("0 to {}", limit - 1), ""});
    append_added(model, read_added(token, std::stoll(key)), vocabulary, token.place());
  }
}

// added_tokens.json: {"<|mark|>": 50257, ...}
void read_added_json(const fs::path& path, const Vocabulary& vocabulary, BytePairModel& model) {
  if (!path_exists(path)) return;
  const json parsed = read_json_file(path, kMostBytes);
  const JsonView file(parsed, path.string());
  const std::int64_t limit = id_limit(vocabulary.ids.size() + file.object().size());
  for (const auto& [content, id] : file.object().items()) {
    const JsonView view(id, fmt::format("{}: '{}'", path.string(), content));
    if (content.empty()) view.refuse("the id of a token");
    append_added(model, {.id = view.count(limit), .content = content}, vocabulary, view.place());
  }
}

}  // namespace

BytePairModel read_vocab_json(const fs::path& path) {
  const fs::path folder = path.parent_path();
  const json parsed = read_json_file(path, kMostBytes);
  const Vocabulary vocabulary = read_vocabulary(JsonView(parsed, path.string()), 0);
  BytePairModel model;
  model.merges = read_merges_txt(folder / "merges.txt", vocabulary);
  bool add_prefix_space = false;
  if (const fs::path config_path = folder / "tokenizer_config.json"; path_exists(config_path)) {
    const json config_json = read_json_file(config_path, kMostBytes);
    const JsonView config(config_json, config_path.string());
    add_prefix_space = config.flag_or("add_prefix_space", false);
    read_decoder(config, vocabulary, model);
  }
  read_added_json(folder / "added_tokens.json", vocabulary, model);
  model.steps = {{kGpt2Pattern, add_prefix_space}};
  model.special = read_special_tokens(folder, [&](const auto& token) { return find_id(model, vocabulary, token); });
  const auto gpt2 = find_id(model, vocabulary, kGpt2Special);
  for (auto* id : {&model.special.begin, &model.special.end, &model.special.unknown})
    if (!*id) *id = gpt2;
  model.tokens = vocabulary.tokens;
  for (const auto& id : {model.special.begin, model.special.end, model.special.padding, model.special.unknown})
    if (id && static_cast<std::size_t>(*id) < model.tokens.size())
      append_added(model, {.id = *id, .content = model.tokens[static_cast<std::size_t>(*id)]}, vocabulary,
                   path.string());
  return model;
}

}  // namespace gantry
