#include "gantry/booster/show_sample.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "gantry/booster/image_chats.h"
#include "gantry/booster/recipe.h"
#include "gantry/booster/run_task.h"
#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/corpus/line_file.h"
#include "gantry/data/encoded_text.h"
#include "gantry/data/json_lines.h"
#include "gantry/data/line_encoder.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {
namespace {

constexpr std::int64_t kAnyVocabulary = std::numeric_limits<std::int64_t>::max();
constexpr int kLongestLine = 1 << 24;  // tokens of a line without a model

bool has_model(const Config& config) { return !config.model.path.empty() || !config.model.policy.empty(); }

std::string tokenizer_of(const Config& config) {
  return choose_text_tokenizer(config.data.tokenizer, config.model.path,
                               has_model(config) ? vocabulary_of(config) : kAnyVocabulary);
}

ShownSample with_texts(ShownSample sample) {
  const auto tokenizer = load_tokenizer(sample.tokenizer);
  for (const SampleToken& token : sample.tokens)
    sample.texts.push_back(valid_utf8(tokenizer->decode(std::vector<std::int64_t>{token.id})));
  return sample;
}

// Returns the sample without its texts.
ShownSample sample_of(const Config& config, const std::string& place, std::int64_t row) {
  const auto datasets = build_samples(config).open(no_progress);
  const Dataset& data = *datasets.front().dataset;
  if (row < 1 || row > data.size())
    throw InputError({place, fmt::format("there is no sample {}", row), fmt::format("1 to {}", data.size()), ""});
  ShownSample made{.place = fmt::format("{}: sample {}", place, row),
                   .tokenizer = {},
                   .tokens = data.tokens_of(row - 1),
                   .texts = {},
                   .label = data.label_of(row - 1)};
  if (made.tokens.empty())
    throw ConfigError({"data.format",
                       fmt::format("samples of the format {} have no tokens to show", config.data.format),
                       "text, tokens, megatron or jsonl", ""});
  made.tokenizer = tokenizer_of(config);
  return made;
}

// The text around a token as a JSON string, with the tokens with a loss between brackets.
std::string excerpt(const ShownSample& sample, std::ptrdiff_t token) {
  constexpr std::ptrdiff_t kBefore = 12, kTokens = 40;
  const auto count = static_cast<std::ptrdiff_t>(sample.tokens.size());
  const std::ptrdiff_t first = std::max<std::ptrdiff_t>(0, token - kBefore), last = std::min(count, first + kTokens);
  TokenIds part;  // tokens with the same is_trained, decoded together
  bool is_trained = false;
  const auto tokenizer = load_tokenizer(sample.tokenizer);
  std::string text = first > 0 ? "..." : "";
  const auto flush = [&] {
    const std::string decoded = valid_utf8(tokenizer->decode(part));
    text += is_trained ? "\u27e6" + decoded + "\u27e7" : decoded;
    part.clear();
  };
  for (std::ptrdiff_t i = first; i < last; ++i) {
    const SampleToken& each = sample.tokens[static_cast<std::size_t>(i)];
    if (!part.empty() && each.is_trained != is_trained) flush();
    is_trained = each.is_trained;
    part.push_back(each.id);
  }
  if (!part.empty()) flush();
  return nlohmann::json(text + (last < count ? "..." : "")).dump();
}

std::string line_of(const std::string& file, std::int64_t number) {
  LineFile lines(file);
  for (std::string line; lines.next(line);)
    if (lines.number() == number) return line;
  throw InputError({fmt::format("{}:{}", file, number), "the file has fewer lines", "a line of the file, from 1", ""});
}

std::string json_line(const std::string& file, std::int64_t line) {
  if (is_json_lines_file(file)) return line_of(file, std::max<std::int64_t>(line, 1));
  if (line > 0) return nlohmann::json{{"text", valid_utf8(line_of(file, line))}}.dump();
  std::string text;
  LineFile(file).read_rest(text);
  return nlohmann::json{{"text", valid_utf8(text)}}.dump();
}

}  // namespace

ShownSample show_sample(const Config& config, const std::string& place, std::int64_t row) {
  return with_texts(sample_of(config, place, row));
}

std::string describe_first_sample(const Config& config) {
  if (config.data.format != "text" && config.data.format != "jsonl") return "";
  const ShownSample sample = sample_of(config, "data", 1);
  if (!sample.label.empty())
    return fmt::format("{} tokens, label {}: {}", sample.tokens.size(), sample.label, excerpt(sample, 0));
  const auto is_trained = [](const SampleToken& token) { return token.is_trained; };
  const auto first = std::ranges::find_if(sample.tokens, is_trained) - sample.tokens.begin();
  return fmt::format("{} tokens, {} of them with a loss, here between \u27e6 and \u27e7: {}", sample.tokens.size(),
                     std::ranges::count_if(sample.tokens, is_trained), excerpt(sample, first));
}

ShownSample show_line(const Config& config, const std::string& file, std::int64_t line) {
  const std::string place =
      is_json_lines_file(file) || line > 0 ? fmt::format("{}:{}", file, std::max<std::int64_t>(line, 1)) : file;
  const auto* family = has_model(config) ? family_or_null(config) : nullptr;
  const std::string task = family ? task_of(config) : "tokens";
  if ((task != "tokens" && task != "pairs") || (family && family->is_bidirectional && task == "tokens"))
    throw ConfigError({"--model", fmt::format("{} is not trained on the next token", config.model.policy),
                       "a decoder or an encoder-decoder", "pass the configuration of the run instead of a file"});
  DataConfig data = config.data;
  data.tokenizer = tokenizer_of(config);
  data.sequence_length = kLongestLine;
  if (family)
    data.sequence_length =
        static_cast<int>(std::min<std::int64_t>(family->context_length(model_json(config)), kLongestLine));
  data.target_length = task == "pairs" ? data.sequence_length : 0;
  const auto vocabulary = has_model(config) ? vocabulary_of(config) : kAnyVocabulary;
  const LineEncoder encoder(family ? chat_rules(config, data) : line_rules(data, vocabulary));
  std::vector<SampleToken> tokens;
  append_tokens(encoder.encode(json_line(file, line), place, /*for_display=*/true), 0, task == "pairs", tokens);
  return with_texts({.place = place, .tokenizer = data.tokenizer, .tokens = std::move(tokens), .texts = {}});
}

}  // namespace gantry
