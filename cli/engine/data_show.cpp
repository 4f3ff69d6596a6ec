#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "gantry/booster/recipe.h"
#include "gantry/booster/show_sample.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/core/error.h"
#include "gantry/core/io/output.h"
#include "gantry/core/io/paths.h"

namespace gantry::cli {
namespace {

// SOURCE or SOURCE:NUMBER; 0: no number.
struct Source {
  std::string path;
  std::int64_t number = 0;
  bool is_config() const { return path.ends_with(".yaml") || path.ends_with(".yml"); }
};

Source parse_source(const std::string& text) {
  const auto colon = text.rfind(':');
  if (is_file(text) || colon == std::string::npos) return {text};
  Source source{text.substr(0, colon)};
  const char *first = text.data() + colon + 1, *last = text.data() + text.size();
  const auto [end, failure] = std::from_chars(first, last, source.number);
  if (failure != std::errc() || end != last || source.number < 1)
    throw UsageError({text, "the file does not exist", "FILE, or FILE:NUMBER with a number from 1", "check the path"});
  return source;
}

Config config_of(const DataShowArguments& arguments, const Source& source) {
  std::vector<std::string> sets = arguments.sets;
  if (source.is_config()) {
    if (!arguments.model.empty()) sets.push_back("model.path=" + arguments.model);
    if (!arguments.tokenizer.empty()) sets.push_back("data.tokenizer=" + arguments.tokenizer);
    return Config::load(source.path, sets);
  }
  nlohmann::json keys = {{"data", {{"format", "jsonl"}, {"path", source.path}}}};
  // The reader wants a model, of which a file with a tokenizer of its own needs none.
  keys["model"] =
      arguments.model.empty() ? nlohmann::json{{"policy", "gpt2"}} : nlohmann::json{{"path", arguments.model}};
  if (!arguments.tokenizer.empty()) keys["data"]["tokenizer"] = arguments.tokenizer;
  if (arguments.model.empty() && arguments.tokenizer.empty())
    throw UsageError({"gantry data show", "a data file has no tokenizer", "--model DIR or --tokenizer PATH",
                      "add one of them, or pass the configuration of a run"});
  Config config = Config::parse(keys.dump(), source.path, sets);
  if (arguments.model.empty()) config.model = {};
  return config;
}

std::string to_json(const ShownSample& sample) {
  nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    const SampleToken& token = sample.tokens[i];
    tokens.push_back({{"id", token.id},
                      {"text", sample.texts[i]},
                      {"document", token.document},
                      {"position", token.position},
                      {"trained", token.is_trained},
                      {"why", token.why}});
  }
  nlohmann::ordered_json json = {
      {"tokens", std::move(tokens)}, {"sample", sample.place}, {"tokenizer", sample.tokenizer}};
  if (!sample.label.empty()) json["label"] = sample.label;
  return json.dump() + "\n";
}

// Trained tokens are green on a terminal.
std::string to_text(const ShownSample& sample) {
  const bool is_coloured = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  const auto trained = std::ranges::count_if(sample.tokens, [](const SampleToken& token) { return token.is_trained; });
  std::string text = fmt::format(
      "{}: {} tokens, {}; tokenizer {}\n\n{:>6} {:>8} {:>9} {:>9}  {:8} {:28} {}\n", sample.place, sample.tokens.size(),
      sample.label.empty() ? fmt::format("{} of them trained", trained) : "label " + sample.label, sample.tokenizer,
      "place", "id", "document", "position", "trained", "why", "text");
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    const SampleToken& token = sample.tokens[i];
    const bool is_green = is_coloured && token.is_trained;
    text += fmt::format("{}{:>6} {:>8} {:>9} {:>9}  {:8} {:28} {}{}\n", is_green ? "\033[32m" : "", i, token.id,
                        token.document, token.position, token.is_trained ? "yes" : "no", token.why,
                        nlohmann::json(sample.texts[i]).dump(), is_green ? "\033[0m" : "");
  }
  return text;
}

}  // namespace

int run_data_show(const DataShowArguments& arguments) {
  const Source source = parse_source(arguments.source);
  Config config = config_of(arguments, source);
  load_libraries(config);
  if (source.is_config() || !arguments.model.empty()) config = resolve_model(std::move(config));
  const ShownSample sample = source.is_config()
                                 ? show_sample(config, source.path, std::max<std::int64_t>(1, source.number))
                                 : show_line(config, source.path, source.number);
  print_output(arguments.json ? to_json(sample) : to_text(sample));
  return 0;
}

}  // namespace gantry::cli
