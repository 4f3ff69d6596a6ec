#include "gantry/data/tokenizers/text_ends.h"

#include <algorithm>
#include <optional>

#include "gantry/core/error.h"

namespace gantry {
namespace {

TokenIds side_of(const std::string& rule, const std::string& key, TokenIds added, std::optional<std::int64_t> own) {
  if (rule == "never") return {};
  if (added.empty() && own) added.push_back(*own);
  if (added.empty() && rule == "always")
    throw InputError({key, "the value is always, but the tokenizer has no such token", "auto or never",
                      "set it to auto, or use a tokenizer that names the token in tokenizer_config.json"});
  return added;
}

}  // namespace

SurroundingTokens ends_of_training_text(const Tokenizer& tokenizer, const TextEnds& ends) {
  const auto& [before, after] = tokenizer.surrounding();
  const SpecialTokenIds special = tokenizer.special();
  return {side_of(ends.bos, "data.bos", before, ends.bos == "always" ? special.begin : std::nullopt),
          side_of(ends.eos, "data.eos", after, special.end)};
}

SurroundingTokens ends_of_prompt(const Tokenizer& tokenizer, const TextEnds& ends) {
  SurroundingTokens made = ends_of_training_text(tokenizer, ends);
  if (tokenizer.surrounding().after.empty()) made.after.clear();
  return made;
}

void surround(TokenIds& ids, const SurroundingTokens& ends) {
  const auto& [before, after] = ends;
  const auto begins_with = [](const auto& first, const auto& last, const auto& side_first, const auto& side_last) {
    return side_last - side_first <= last - first && std::equal(side_first, side_last, first);
  };
  if (!begins_with(ids.begin(), ids.end(), before.begin(), before.end()))
    ids.insert(ids.begin(), before.begin(), before.end());
  if (!begins_with(ids.rbegin(), ids.rend(), after.rbegin(), after.rend()))
    ids.insert(ids.end(), after.begin(), after.end());
}

}  // namespace gantry
