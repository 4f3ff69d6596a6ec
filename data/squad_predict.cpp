// Finds the best spans of a question over its windows.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "gantry/core/error.h"
#include "gantry/data/squad_answers.h"

namespace gantry {
namespace {

void require_match(const std::vector<SquadFeature>& features, const std::vector<SquadLogits>& logits) {
  if (features.size() != logits.size())
    throw UsageError({"predict_squad",
                      fmt::format("there are {} features, but logits for {}", features.size(), logits.size()),
                      "logits for each feature", ""});
  for (std::size_t i = 0; i < features.size(); ++i) {
    const auto needed = static_cast<std::size_t>(features[i].encoding.second_end);
    const auto& [start, end] = logits[i];
    if (start.size() < needed || end.size() < needed)
      throw UsageError({fmt::format("predict_squad: feature {}", i),
                        fmt::format("there are {} start and {} end logits", start.size(), end.size()),
                        fmt::format("at least {}, one for each token", needed), ""});
    for (std::size_t t = 0; t < needed; ++t)
      if (!std::isfinite(start[t]) || !std::isfinite(end[t]))
        throw NumericalError({fmt::format("predict_squad: feature {}, token {}", i, t),
                              fmt::format("the logits are {} and {}", start[t], end[t]), "finite numbers", ""});
  }
}

// Appends every span of the window's part of the context that has at most `max_length` tokens.
void append_spans(const SquadFeature& feature, const SquadLogits& logits, std::int64_t max_length,
                  std::vector<SquadSpan>& spans) {
  const Encoding& window = feature.encoding;
  for (auto start = window.second_begin; start < window.second_end; ++start)
    for (auto end = start; end < std::min(start + max_length, window.second_end); ++end) {
      const auto s = static_cast<std::size_t>(start), e = static_cast<std::size_t>(end);
      spans.push_back({{}, {window.offsets[s].begin, window.offsets[e].end}, logits.start[s] + logits.end[e], 0});
    }
}

// Keeps the `n_best` best spans, each once, in order. Among equal scores, the span that begins first
// precedes, and then the shorter one.
void keep_best(std::vector<SquadSpan>& spans, std::int64_t n_best) {
  const auto place = [](const SquadSpan& s) { return std::pair(s.span.begin, s.span.end); };
  std::sort(spans.begin(), spans.end(), [&](const auto& a, const auto& b) {
    return place(a) != place(b) ? place(a) < place(b) : a.score > b.score;
  });
  const auto same = [&](const auto& a, const auto& b) { return place(a) == place(b); };
  spans.erase(std::unique(spans.begin(), spans.end(), same), spans.end());
  std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  spans.resize(std::min(spans.size(), static_cast<std::size_t>(n_best)));
}

void set_probabilities(std::vector<SquadSpan>& spans) {
  double sum = 0;
  for (auto& span : spans) sum += span.probability = std::exp(double{span.score} - double{spans.front().score});
  for (auto& span : spans) span.probability /= sum;
}

// `prediction` has null_score; the rest comes from `spans`.
void choose(SquadPrediction& prediction, std::vector<SquadSpan> spans, const std::string& context,
            const SquadAnswerOptions& options) {
  keep_best(spans, options.n_best);
  for (auto& [text, span, score, probability] : spans)
    text = context.substr(static_cast<std::size_t>(span.begin), static_cast<std::size_t>(span.end - span.begin));
  const bool is_null = spans.empty() || (options.may_be_impossible &&
                                         prediction.null_score - spans.front().score > options.null_threshold);
  if (!is_null) prediction.text = spans.front().text;
  if (options.may_be_impossible) {
    const auto below = [&](const SquadSpan& span) { return span.score < prediction.null_score; };
    spans.insert(std::find_if(spans.begin(), spans.end(), below), {{}, {}, prediction.null_score, 0});
    spans.resize(std::min(spans.size(), static_cast<std::size_t>(options.n_best)));
  }
  if (!spans.empty()) set_probabilities(spans);
  prediction.n_best = std::move(spans);
}

}  // namespace

std::map<std::string, SquadPrediction> predict_squad(const SquadData& data, const std::vector<SquadFeature>& features,
                                                     const std::vector<SquadLogits>& logits,
                                                     const SquadAnswerOptions& options) {
  if (options.n_best < 1 || options.max_answer_length < 1)
    throw UsageError(
        {"predict_squad",
         fmt::format("n_best is {} and max_answer_length is {}", options.n_best, options.max_answer_length),
         "at least 1 each", ""});
  require_match(features, logits);
  std::map<std::string, SquadPrediction> predictions;
  for (std::size_t i = 0; i < features.size();) {
    const std::int64_t number = features[i].example;
    const SquadExample& example = data.examples.at(static_cast<std::size_t>(number));
    SquadPrediction prediction;
    prediction.null_score = std::numeric_limits<float>::infinity();
    std::vector<SquadSpan> spans;
    for (; i < features.size() && features[i].example == number; ++i) {
      prediction.null_score = std::min(prediction.null_score, logits[i].start[0] + logits[i].end[0]);
      append_spans(features[i], logits[i], options.max_answer_length, spans);
    }
    choose(prediction, std::move(spans), *example.context, options);
    predictions[example.id] = std::move(prediction);
  }
  return predictions;
}

}  // namespace gantry
