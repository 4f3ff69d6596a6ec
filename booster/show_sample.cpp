#include "gantry/booster/show_sample.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "gantry/booster/recipe.h"
#include "gantry/booster/run_task.h"
#include "gantry/core/error.h"
#include "gantry/core/mapped_file.h"
#include "gantry/core/utf8.h"
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

ShownSample with_texts(const std::string& place, const std::string& path, std::vector<SampleToken> tokens) {
  ShownSample made{.place = place, .tokenizer = path, .tokens = std::move(tokens), .texts = {}};
  const auto tokenizer = load_tokenizer(path);
  for (const SampleToken& token : made.tokens)
    made.texts.push_back(valid_utf8(tokenizer->decode(std::vector<std::int64_t>{token.id})));
  return made;
}

// The line, without its end.
std::string line_of(const std::string& file, std::int64_t number) {
  const MappedFile mapped(file);
  std::string_view rest = mapped.text();
  for (std::int64_t i = 1; !rest.empty(); ++i) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    if (i == number) return std::string(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  throw InputError({fmt::format("{}:{}", file, number), "the file has fewer lines", "a line of the file, from 1", ""});
}

std::string json_line(const std::string& file, std::int64_t line) {
  if (file.ends_with(".jsonl")) return line_of(file, std::max<std::int64_t>(line, 1));
  const std::string text = line > 0 ? line_of(file, line) : std::string(MappedFile(file).text());
  return nlohmann::json{{"text", valid_utf8(text)}}.dump();
}

}  // namespace

ShownSample show_sample(const Config& config, const std::string& place, std::int64_t row) {
  const auto datasets = build_samples(config).open();
  const Dataset& data = *datasets.front().dataset;
  if (row < 1 || row > data.size())
    throw InputError({place, fmt::format("there is no sample {}", row), fmt::format("1 to {}", data.size()), ""});
  auto tokens = data.tokens_of(row - 1);
  if (tokens.empty())
    throw ConfigError({"data.format",
                       fmt::format("samples of the format {} have no tokens to show", config.data.format),
                       "text, tokens, megatron or jsonl", ""});
  return with_texts(fmt::format("{}: sample {}", place, row), tokenizer_of(config), std::move(tokens));
}

ShownSample show_line(const Config& config, const std::string& file, std::int64_t line) {
  const std::string place =
      file.ends_with(".jsonl") || line > 0 ? fmt::format("{}:{}", file, std::max<std::int64_t>(line, 1)) : file;
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
  const LineEncoder encoder(line_rules(data, has_model(config) ? vocabulary_of(config) : kAnyVocabulary));
  std::vector<SampleToken> tokens;
  append_tokens(encoder.encode(json_line(file, line), place, /*for_display=*/true), 0, task == "pairs", tokens);
  return with_texts(place, data.tokenizer, std::move(tokens));
}

}  // namespace gantry
