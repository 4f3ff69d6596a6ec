#include "gantry/generation/forced_tokens.h"

#include <algorithm>
#include <limits>

namespace gantry {
namespace {

constexpr std::int64_t kMostTokenIds = std::numeric_limits<std::int32_t>::max();

// Pairs [place, token] of the places 1, 2, ...
std::vector<std::int64_t> listed_tokens(const JsonView& keys) {
  std::vector<std::int64_t> tokens;
  const auto found = keys.find("forced_decoder_ids");
  if (!found) return tokens;
  for (std::size_t i = 0; i < found->list().size(); ++i) {
    const JsonView pair = found->element(i);
    if (pair.list().size() != 2 || pair.list()[0] != i + 1)
      pair.refuse("a pair of place and token, the places from 1 on without a gap");
    tokens.push_back(pair.element(1).is_null() ? kUnknownToken : pair.element(1).count(kMostTokenIds));
  }
  return tokens;
}

// The token that a name stands for in one of the file's tables.
std::int64_t token_named(const JsonView& keys, const char* table, const std::string& name, const JsonView& asked) {
  const JsonView known = keys.at(table);
  if (!known.object().contains(name)) asked.refuse(std::string("a name of ") + table);
  return known.at(name).count(kMostTokenIds);
}

// "en" or "<|en|>" of lang_to_id.
std::int64_t language_token(const JsonView& keys, const JsonView& language) {
  const std::string& name = language.text();
  return token_named(keys, "lang_to_id", name.starts_with("<|") ? name : "<|" + name + "|>", language);
}

}  // namespace

std::vector<std::int64_t> forced_tokens(const JsonView& keys) {
  if (const auto stamps = keys.find("return_timestamps"); stamps && stamps->json() != false)
    stamps->refuse("false: Gantry gives no time stamps", "take it out");
  const auto language = keys.find("language"), task = keys.find("task");
  std::vector<std::int64_t> tokens;
  if (!language && !task) tokens = listed_tokens(keys);
  if (language)
    tokens.push_back(language_token(keys, *language));
  else if (tokens.empty() && keys.find("lang_to_id"))
    tokens.push_back(kUnknownToken);
  if (task)
    tokens.push_back(token_named(keys, "task_to_id", task->text(), *task));
  else if (language && keys.find("task_to_id"))
    tokens.push_back(token_named(keys, "task_to_id", "transcribe", *language));
  if (const auto none = keys.find("no_timestamps_token_id"))
    if (const auto token = none->count(kMostTokenIds); std::ranges::find(tokens, token) == tokens.end())
      tokens.push_back(token);
  return tokens;
}

}  // namespace gantry
