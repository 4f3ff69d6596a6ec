#include "gantry/generation/languages.h"

namespace gantry::generation {
namespace {

bool detects_languages(const std::vector<TokenIds>& given, const GenerationOptions& options,
                       const Continuation& continuation) {
  return given.empty() && !options.encoder.empty() && continuation.start_token && !options.languages.empty() &&
         !options.begin_tokens.empty() && options.begin_tokens.front() == kUnknownToken;
}

// Returns the token of the detected language for each row of the encoder's input.
std::vector<std::int64_t> detected_languages(const RunPlan& run, const GenerationOptions& options,
                                             const Continuation& continuation, const std::string& policy) {
  const GenerationOptions first{.max_new_tokens = 1, .encoder = options.encoder, .use_cache = options.use_cache};
  const std::vector<TokenIds> prompts = prompts_of({}, first, continuation);
  Plan plan = make_plan(first, prompts, continuation, policy);
  for (const auto& [name, token] : options.languages) plan.only.push_back(token);
  std::vector<std::int64_t> languages;
  for (const auto& sequence : run(plan, prompts)) languages.push_back(sequence.tokens.front());
  return languages;
}

std::string name_of(const GenerationOptions& options, std::int64_t language) {
  for (const auto& [name, token] : options.languages)
    if (token == language) return name;
  return "";
}

}  // namespace

std::vector<GeneratedSequence> generate_by(const RunPlan& run, const std::vector<TokenIds>& given,
                                           const GenerationOptions& options, const Continuation& continuation,
                                           const std::string& policy) {
  std::vector<TokenIds> prompts;
  std::vector<std::int64_t> languages;
  if (detects_languages(given, options, continuation)) {
    languages = detected_languages(run, options, continuation, policy);
    for (const std::int64_t language : languages) {
      prompts.push_back({*continuation.start_token, language});
      prompts.back().insert(prompts.back().end(), options.begin_tokens.begin() + 1, options.begin_tokens.end());
    }
  } else {
    prompts = prompts_of(given, options, continuation);
  }
  auto sequences = run(make_plan(options, prompts, continuation, policy), prompts);
  if (!languages.empty())
    for (auto& sequence : sequences)
      sequence.language = name_of(options, languages[static_cast<std::size_t>(sequence.prompt)]);
  return sequences;
}

}  // namespace gantry::generation
