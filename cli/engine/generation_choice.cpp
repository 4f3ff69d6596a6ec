#include "gantry/cli/engine/generation_choice.h"

#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry::cli {
namespace {

template <class Value, class Given>
void take(Value& value, const Given& given) {
  if (given) value = *given;
}

std::int64_t stop_token(const std::string& word, const TrainedModel& model, const PromptText* text) {
  if (!word.empty() && word.find_first_not_of("0123456789") == std::string::npos) {
    const std::int64_t token = parse_tokens(word).front();
    if (token < model.vocabulary) return token;
    throw UsageError({"--stop", fmt::format("token {} is outside the vocabulary of {} tokens", token, model.vocabulary),
                      fmt::format("0 to {}", model.vocabulary - 1), ""});
  }
  if (!text)
    throw UsageError(
        {"--stop", fmt::format("'{}' is text, but the model has no tokenizer", word), "the number of a token", ""});
  return text->token_of(word);
}

void refuse_without(const char* flag, const char* needed) {
  throw UsageError({flag, std::string("the flag has no effect without ") + needed, "", std::string("add ") + needed});
}

void refuse_lost_speech(const GenerateArguments& given) {
  if (!given.features.empty()) return;
  if (!given.language.empty()) refuse_without("--language", "--features");
  if (!given.task.empty()) refuse_without("--task", "--features");
  if (given.time_stamps) refuse_without("--timestamps", "--features");
}

void refuse_lost_flags(const GenerateArguments& given, const GenerationOptions& options) {
  if (!options.sample) {
    if (given.temperature) refuse_without("--temperature", "--sample");
    if (given.top_k) refuse_without("--top-k", "--sample");
    if (given.top_p) refuse_without("--top-p", "--sample");
    if (given.min_p) refuse_without("--min-p", "--sample");
    if (given.typical_p) refuse_without("--typical-p", "--sample");
    if (given.seed) refuse_without("--seed", "--sample");
  }
  if (options.num_beams > 1) return;
  if (given.length_penalty) refuse_without("--length-penalty", "--num-beams");
  if (!given.early_stopping.empty()) refuse_without("--early-stopping", "--num-beams");
}

}  // namespace

GenerationOptions options_of(const GenerateArguments& given, const TrainedModel& model, const PromptText* text) {
  refuse_lost_speech(given);
  SpeechChoice speech{.language = given.language, .task = given.task};
  if (given.time_stamps) speech.time_stamps = true;
  GenerationOptions options = generation_defaults(model.path, speech);
  if (given.max_length && !given.max_new_tokens) options.max_new_tokens.reset();
  take(options.max_new_tokens, given.max_new_tokens);
  take(options.max_length, given.max_length);
  take(options.min_new_tokens, given.min_new_tokens);
  take(options.min_length, given.min_length);
  take(options.repetition_penalty, given.repetition_penalty);
  take(options.no_repeat_ngram_size, given.no_repeat_ngram_size);
  take(options.sample, given.sample);
  take(options.temperature, given.temperature);
  take(options.top_k, given.top_k);
  take(options.top_p, given.top_p);
  take(options.min_p, given.min_p);
  take(options.typical_p, given.typical_p);
  take(options.seed, given.seed);
  take(options.num_beams, given.num_beams);
  take(options.length_penalty, given.length_penalty);
  take(options.num_return_sequences, given.num_return_sequences);
  if (given.early_stopping == "never")
    options.early_stopping = EarlyStopping::kNever;
  else if (!given.early_stopping.empty())
    options.early_stopping = given.early_stopping == "true" ? EarlyStopping::kYes : EarlyStopping::kNo;
  for (const auto& word : given.stops) options.stop_tokens.push_back(stop_token(word, model, text));
  options.use_cache = !given.recomputes;
  refuse_lost_flags(given, options);
  return options;
}

}  // namespace gantry::cli
