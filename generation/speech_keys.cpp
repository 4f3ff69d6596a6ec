#include "gantry/generation/speech_keys.h"

#include <fmt/format.h>
#include <limits>

#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr std::int64_t kMostTokenIds = std::numeric_limits<std::int32_t>::max();

// Reads pairs [position, token] with positions 1, 2, ... Only the first token, the language, may be null
// (unknown).
std::vector<std::int64_t> listed_tokens(const JsonView& keys) {
  std::vector<std::int64_t> tokens;
  const auto found = keys.find("forced_decoder_ids");
  if (!found) return tokens;
  for (std::size_t i = 0; i < found->list().size(); ++i) {
    const JsonView pair = found->element(i);
    if (pair.list().size() != 2 || pair.list()[0] != i + 1)
      pair.refuse("a pair of position and token, with positions from 1 on without a gap");
    if (!pair.element(1).is_null())
      tokens.push_back(pair.element(1).count(kMostTokenIds));
    else if (i == 0)
      tokens.push_back(kUnknownToken);
  }
  return tokens;
}

std::string asked_or_set(const JsonView& keys, const char* key, const std::string& asked) {
  const auto found = keys.find(key);
  return !asked.empty() || !found ? asked : found->text();
}

// Returns the token of a name in one of the file's tables.
std::int64_t token_named(const JsonView& keys, const char* table, const std::string& name) {
  const auto known = keys.find(table);
  if (!known)
    throw InputError({keys.place(), fmt::format("the file has no {}, which is needed to find '{}'", table, name),
                      "the file of a multilingual model", "remove the name"});
  if (known->object().contains(name)) return known->at(name).count(kMostTokenIds);
  std::vector<std::string> names;
  for (const auto& [each, token] : known->object().items()) names.push_back(each);
  const std::string near = nearest_name(name, names);
  throw InputError({keys.place(), fmt::format("'{}' is not in {}", name, table), fmt::format("a name of {}", table),
                    near.empty() ? "" : "did you mean '" + near + "'?"});
}

// Returns the token of "en" or "<|en|>" in lang_to_id.
std::int64_t language_token(const JsonView& keys, const std::string& name) {
  return token_named(keys, "lang_to_id", name.starts_with("<|") ? name : "<|" + name + "|>");
}

std::map<std::string, std::int64_t> languages_of(const JsonView& table) {
  std::map<std::string, std::int64_t> languages;
  for (const auto& [name, token] : table.object().items()) languages[name] = table.at(name).count(kMostTokenIds);
  return languages;
}

TimeStamps time_stamps_of(const JsonView& keys, std::int64_t none, const GenerationOptions& options) {
  if (options.stop_tokens.size() != 1)
    throw InputError(
        {keys.place(), fmt::format("time stamps need one stop token, but there are {}", options.stop_tokens.size()),
         "one eos_token_id, which is greater than all text tokens", "set it, or generate without time stamps"});
  TimeStamps stamps{.first = none + 1, .text_end = options.stop_tokens.front()};
  if (const auto most = keys.find("max_initial_timestamp_index")) stamps.most_initial = most->count(kMostTokenIds);
  return stamps;
}

}  // namespace

void take_speech(const JsonView& keys, const SpeechChoice& asked, GenerationOptions& options) {
  const std::string language = asked_or_set(keys, "language", asked.language),
                    task = asked_or_set(keys, "task", asked.task);
  if (!(language + task).empty() && !keys.flag_or("is_multilingual", true))
    throw InputError({keys.place() + ": is_multilingual", "the value is false, but a language or a task is set",
                      "neither for a model of one language", "remove it"});
  std::vector<std::int64_t>& tokens = options.begin_tokens;
  if (language.empty() && task.empty()) tokens = listed_tokens(keys);
  const auto table = keys.find("lang_to_id");
  if (!language.empty())
    tokens.push_back(language_token(keys, language));
  else if (table && tokens.empty())
    tokens.push_back(kUnknownToken);
  else if (!table && !tokens.empty() && tokens.front() == kUnknownToken)
    tokens.erase(tokens.begin());
  if (!tokens.empty() && tokens.front() == kUnknownToken) options.languages = languages_of(*table);
  if (!task.empty())
    tokens.push_back(token_named(keys, "task_to_id", task));
  else if (!language.empty() && keys.find("task_to_id"))
    tokens.push_back(token_named(keys, "task_to_id", "transcribe"));
  const auto none = keys.find("no_timestamps_token_id");
  const bool stamps = asked.time_stamps.value_or(keys.flag_or("return_timestamps", false));
  if (stamps && !none)
    throw InputError({keys.place(), "time stamps need no_timestamps_token_id, which is not set",
                      "the token before the first time stamp", "set it, or generate without time stamps"});
  if (!none) return;
  const std::int64_t token = none->count(kMostTokenIds);
  if (stamps) options.time_stamps = time_stamps_of(keys, token, options);
  const bool ends_with_it = !tokens.empty() && tokens.back() == token;
  if (stamps && ends_with_it) tokens.pop_back();
  if (!stamps && !ends_with_it) tokens.push_back(token);
}

}  // namespace gantry
