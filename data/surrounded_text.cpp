#include "gantry/data/surrounded_text.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// The lengths to which two texts are shortened so that they fit into `room` tokens: as in Hugging Face's tokenizers,
// the longer text is shortened first.
std::pair<std::int64_t, std::int64_t> lengths_in(std::int64_t room, std::int64_t first, std::int64_t second) {
  const bool swaps = first > second;
  std::int64_t shorter = std::min(first, second), longer = std::max(shorter, room - shorter);
  if (shorter + longer > room) shorter = room / 2, longer = room / 2 + room % 2;
  return swaps ? std::pair(std::min(first, longer), shorter) : std::pair(shorter, std::min(second, longer));
}

}  // namespace

LineRowsInput surrounded_rows_input(const LinePaths& files, const SurroundedTextRules& rules,
                                    const nlohmann::json& own) {
  const nlohmann::json all = {own, rules.tokenizer, rules.sequence_length, rules.vocabulary, rules.bad_lines};
  return {.input = {.files = files, .tokenizer = rules.tokenizer, .rules = all.dump()},
          .stops_at_bad_line = rules.bad_lines == "stop",
          .resources = rules.encoding};
}

SurroundedTextEncoder::SurroundedTextEncoder(const SurroundedTextRules& rules)
    : rules_(rules), tokenizer_(load_tokenizer(rules.tokenizer)) {}

TypedTokens SurroundedTextEncoder::encode(const std::string& text, const std::optional<std::string>& second,
                                          const std::string& where, bool& was_truncated) const {
  TokenIds left = tokenizer_->encode(text), right;
  if (second) right = tokenizer_->encode(*second);
  const auto& [before, after] = tokenizer_->surrounding();
  const std::size_t added = second ? tokenizer_->join({}, {}).ids.size() : before.size() + after.size();
  const auto size = [](const TokenIds& ids) { return static_cast<std::int64_t>(ids.size()); };
  const std::int64_t room = std::max<std::int64_t>(0, rules_.sequence_length - static_cast<std::int64_t>(added));
  const bool is_too_long = size(left) + size(right) > room;
  if (is_too_long && rules_.bad_lines != "cut")
    throw BadLine({where,
                   fmt::format("the text has {} tokens, more than data.sequence_length {}",
                               size(left) + size(right) + static_cast<std::int64_t>(added), rules_.sequence_length),
                   "a shorter text", "raise data.sequence_length, or set data.bad_lines to skip or cut"});
  if (is_too_long) {
    was_truncated = true;
    const auto [first_length, second_length] =
        second ? lengths_in(room, size(left), size(right)) : std::pair(room, std::int64_t{0});
    left.resize(static_cast<std::size_t>(first_length));
    right.resize(static_cast<std::size_t>(second_length));
  }
  TypedTokens made;
  if (second) {
    made = tokenizer_->join(left, right);
  } else {
    made.ids = before;
    made.ids.insert(made.ids.end(), left.begin(), left.end());
    made.ids.insert(made.ids.end(), after.begin(), after.end());
    made.types.assign(made.ids.size(), 0);
  }
  for (const std::int64_t id : made.ids)
    if (id >= rules_.vocabulary)
      throw InputError({where,
                        fmt::format("token {} of the tokenizer {} is outside the model's vocabulary of {}", id,
                                    rules_.tokenizer, rules_.vocabulary),
                        fmt::format("0 to {}", rules_.vocabulary - 1), "check that data.tokenizer is the model's own"});
  return made;
}

}  // namespace gantry
