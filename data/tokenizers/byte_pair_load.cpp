// Reading byte-level BPE from tokenizer.json, or from vocab.json and merges.txt. The files are not trusted.
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/paths.h"
#include "gantry/data/tokenizers/byte_pair_tokenizer.h"
#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/piece_step.h"
#include "gantry/data/tokenizers/special_tokens.h"
#include "gantry/data/tokenizers/vocabulary.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kGpt2Special = "<|endoftext|>";  // GPT-2's only special token

// "\p{N}" and its like of a Split step; the other ways to split are not of the byte-level kind.
SplitStep read_split(const JsonView& step) {
  const auto behavior = step.at("behavior");
  if (behavior.text() != "Isolated") behavior.refuse("\"Isolated\"", "use a tokenizer with this value");
  if (step.flag_or("invert", false)) step.at("invert").refuse("false", "use a tokenizer with this value");
  return {step.at("pattern").at("Regex").text()};
}

SplitStep read_step(const JsonView& step) {
  const auto type = step.at("type");
  if (type.text() == "Split") return read_split(step);
  if (type.text() == "Digits") return {step.flag_or("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)"};
  if (type.text() == "ByteLevel")
    return {step.flag_or("use_regex", true) ? kGpt2Pattern : "", step.flag_or("add_prefix_space", true)};
  type.refuse("Split, Digits or ByteLevel", "use a byte-level tokenizer with one of these");
}

bool is_byte_level(const JsonView& file, const JsonView& model) {
  const auto type = model.find("type");
  const auto pre_tokenizer = file.find("pre_tokenizer");
  if ((type && type->text() != "BPE") || !model.find("merges") || !pre_tokenizer) return false;
  const auto steps = list_steps(*pre_tokenizer);
  return std::any_of(steps.begin(), steps.end(),
                     [](const auto& step) { return step.at("type").text() == "ByteLevel"; });
}

// Pieces are bytes from there on.
void require_bytes_last(const std::vector<JsonView>& steps) {
  for (std::size_t i = 0; i + 1 < steps.size(); ++i)
    if (steps[i].at("type").text() == "ByteLevel")
      steps[i].at("type").refuse("ByteLevel as the last step", "use a tokenizer with this order");
}

void refuse_unsupported(const JsonView& file, const JsonView& model) {
  if (const auto decoder = file.find("decoder"))
    if (const auto type = decoder->at("type"); type.text() != "ByteLevel")
      type.refuse("ByteLevel", "use a byte-level tokenizer with one of these");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const auto value = model.find(key); value && !value->text().empty())
      value->refuse("null", "use a byte-level tokenizer without it");
  if (const auto dropout = model.find("dropout"); dropout && dropout->json() != 0.0)
    dropout->refuse("null", "set it to null, because ids would be random");
}

}  // namespace

std::unique_ptr<BytePairModel> parse_tokenizer_json(std::string_view text, const fs::path& path) {
  const json parsed = parse_json_text(text, path);
  const JsonView file(parsed, path.string());
  const JsonView model_view = file.at("model");
  if (!is_byte_level(file, model_view)) return nullptr;
  refuse_unsupported(file, model_view);
  auto model = std::make_unique<BytePairModel>();
  if (const auto normalizer = file.find("normalizer")) model->normalizer = read_normalizer(*normalizer);
  const auto added = file.find("added_tokens");
  Vocabulary vocabulary = read_vocabulary(model_view.at("vocab"), added ? added->list().size() : 0);
  model->added = read_added_tokens(file, path.parent_path(), vocabulary);
  for (const auto& step : list_steps(file.at("pre_tokenizer"))) model->steps.push_back(read_step(step));
  require_bytes_last(list_steps(file.at("pre_tokenizer")));
  model->merges = read_merges(model_view.at("merges"), vocabulary);
  model->ignore_merges = model_view.flag_or("ignore_merges", false);
  model->special = read_special_tokens(path.parent_path(),
                                       [&](const auto& token) { return find_token(model->added, vocabulary, token); });
  model->tokens = std::move(vocabulary.tokens);
  return model;
}

namespace {

std::vector<Merge> read_merges_txt(const fs::path& path, const Vocabulary& vocabulary) {
  const std::string bytes = read_bytes(path, kMostTokenizerBytes);
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

}  // namespace

BytePairModel read_vocab_json(const fs::path& path) {
  const fs::path folder = path.parent_path();
  const json parsed = read_json_file(path, kMostTokenizerBytes);
  const Vocabulary vocabulary = read_vocabulary(JsonView(parsed, path.string()), 0);
  BytePairModel model;
  model.merges = read_merges_txt(folder / "merges.txt", vocabulary);
  bool add_prefix_space = false;
  if (const fs::path config_path = folder / "tokenizer_config.json"; path_exists(config_path)) {
    const json config_json = read_json_file(config_path, kMostTokenizerBytes);
    const JsonView config(config_json, config_path.string());
    add_prefix_space = config.flag_or("add_prefix_space", false);
    read_added_decoder(config, vocabulary, model.added);
  }
  read_added_json(folder / "added_tokens.json", vocabulary, model.added);
  model.steps = {{kGpt2Pattern, add_prefix_space}};
  model.special =
      read_special_tokens(folder, [&](const auto& token) { return find_token(model.added, vocabulary, token); });
  const auto gpt2 = find_token(model.added, vocabulary, kGpt2Special);
  for (auto* id : {&model.special.begin, &model.special.end, &model.special.unknown})
    if (!*id) *id = gpt2;
  model.tokens = vocabulary.tokens;
  // What is special is found in text, whether it is listed as added or not. An added token may fill a gap.
  for (const auto& id : {model.special.begin, model.special.end, model.special.padding, model.special.unknown}) {
    const bool is_listed = std::ranges::any_of(model.added, [&](const auto& each) { return id == each.id; });
    if (id && !is_listed)
      put_added(model.added, {.id = *id, .content = model.tokens[static_cast<std::size_t>(*id)]}, vocabulary,
                path.string());
  }
  return model;
}

}  // namespace gantry
