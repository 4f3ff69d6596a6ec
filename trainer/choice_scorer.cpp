#include "gantry/trainer/choice_scorer.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/data/encoded_text.h"
#include "gantry/models/model_family.h"

namespace gantry {

ChoiceScores choice_scores(const std::vector<ChoiceQuestion>& questions, std::span<const double> likelihoods) {
  ChoiceScores scores{.questions = static_cast<std::int64_t>(questions.size())};
  for (const auto& question : questions) {
    const auto own = likelihoods.subspan(static_cast<std::size_t>(question.first), question.lengths.size());
    std::vector<double> normalised;
    for (std::size_t i = 0; i < own.size(); ++i)
      normalised.push_back(own[i] / static_cast<double>(question.lengths[i]));
    const auto best = [](const auto& values) {
      return std::max_element(values.begin(), values.end()) - values.begin();
    };
    scores.accuracy += best(own) == question.answer ? 1 : 0;
    scores.normalised_accuracy += best(normalised) == question.answer ? 1 : 0;
  }
  scores.accuracy /= static_cast<double>(scores.questions);
  scores.normalised_accuracy /= static_cast<double>(scores.questions);
  return scores;
}

std::unique_ptr<ChoiceScorer> ChoiceScorer::of(const Config& config) {
  config.mark_used("evaluation.choices");
  const std::string& path = config.evaluation.choices;
  if (path.empty()) return nullptr;
  if (config.train.label_smoothing > 0)
    throw ConfigError({"evaluation.choices",
                       fmt::format("the scores of choices are likelihoods, but train.label_smoothing is {}",
                                   config.train.label_smoothing),
                       "train.label_smoothing 0", "remove one of the two keys"});
  if (config.train.objective.is_on())
    throw ConfigError({"evaluation.choices",
                       "the scores of choices are likelihoods, but train.objective is " + config.train.objective.name,
                       "no train.objective", "remove one of the two keys"});
  const auto& families = models::families();
  const auto* family = families.contains(config.model.policy) ? &families.at(config.model.policy) : nullptr;
  const auto keys = nlohmann::json::parse(config.model.config_json);
  if (!family || !models::continues_text(*family, keys))
    throw ConfigError({"evaluation.choices", "the model is not a decoder of one of Gantry's families",
                       "a decoder, which reads any text", "remove evaluation.choices"});
  const auto vocabulary = family->vocabulary_size(keys);
  return std::unique_ptr<ChoiceScorer>(new ChoiceScorer(std::make_shared<const ChoiceSamples>(
      path, choose_text_tokenizer(config.data.tokenizer, config.model.path, vocabulary),
      TextEnds{config.data.bos, config.data.eos}, config.data.sequence_length, vocabulary)));
}

ChoiceScorer::ChoiceScorer(std::shared_ptr<const ChoiceSamples> samples)
    : samples_(std::move(samples)),
      loader_(samples_, DataLoaderOptions{.global_batch = 1, .shuffle = false, .keep_last = true}) {}

void ChoiceScorer::distribute(Booster& booster, const Boosted& boosted) { booster.distribute(loader_, boosted); }

std::optional<ChoiceScores> ChoiceScorer::run(Booster& booster, Boosted& boosted, const std::function<bool()>& ends,
                                              const std::function<bool()>& stops) {
  std::vector<double> likelihoods;
  for (std::int64_t i = 0; i < samples_->size(); ++i) {
    if (ends && ends()) return std::nullopt;
    const StepResult result = booster.execute_pipeline(loader_.batch(i), boosted,
                                                       {.broadcast_loss = true, .forward_only = true, .stops = stops});
    if (result.aborted) return std::nullopt;
    double loss = *result.loss;
    for (const auto& [name, added] : result.added_losses) loss -= added;
    likelihoods.push_back(-loss * static_cast<double>(result.tokens));
  }
  return choice_scores(samples_->questions(), likelihoods);
}

}  // namespace gantry
