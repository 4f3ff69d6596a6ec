// Windows over contexts, and the positions of the answers in them.
#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/data/squad.h"

namespace gantry {
namespace {

// The tokens [first, last] of the context that overlap an answer; none if first > last.
struct TokenSpan {
  std::int64_t first = 0;
  std::int64_t last = -1;
};

TokenSpan tokens_of(const SquadExample& example, const Tokens& context) {
  if (example.answers.empty()) return {};
  const ByteSpan answer = example.answers.front().span;
  const auto& offsets = context.offsets;
  const auto first = std::find_if(offsets.begin(), offsets.end(), [&](auto t) { return t.end > answer.begin; });
  const auto last = std::find_if(offsets.rbegin(), offsets.rend(), [&](auto t) { return t.begin < answer.end; });
  return {first - offsets.begin(), offsets.rend() - last - 1};
}

SquadFeature feature_of(std::int64_t example, Encoding encoding, const TokenSpan& answer) {
  SquadFeature feature{.example = example, .encoding = std::move(encoding)};
  const Encoding& window = feature.encoding;
  const std::int64_t shift = window.second_begin - window.second_first;
  const std::int64_t start = answer.first + shift, end = answer.last + shift;
  if (answer.first <= answer.last && start >= window.second_begin && end < window.second_end)
    feature.start_position = start, feature.end_position = end;
  return feature;
}

}  // namespace

std::vector<SquadFeature> make_squad_features(const SquadData& data, const WordPiece& tokenizer,
                                              const EncodeOptions& options) {
  std::vector<SquadFeature> features;
  const std::string* known = nullptr;  // text of `context`, which is reused for all questions of a paragraph
  Tokens context;
  for (std::size_t i = 0; i < data.examples.size(); ++i) {
    const SquadExample& example = data.examples[i];
    if (example.context.get() != known) context = tokenizer.tokenize(*example.context);
    known = example.context.get();
    std::vector<Encoding> windows;
    try {
      windows = tokenizer.encode_pair(tokenizer.tokenize(example.question), context, options);
    } catch (const InputError& error) {
      throw InputError(fmt::format("question {}: {}", example.id, error.what()));
    }
    const TokenSpan answer = tokens_of(example, context);
    for (auto& window : windows)
      features.push_back(feature_of(static_cast<std::int64_t>(i), std::move(window), answer));
  }
  return features;
}

}  // namespace gantry
