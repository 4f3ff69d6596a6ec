// Multiple-choice evaluation by log-likelihood during a run (evaluation.choices).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "gantry/booster/booster.h"
#include "gantry/data/choices.h"
#include "gantry/trainer/metrics.h"

namespace gantry {

// Scores the questions. `likelihoods`: one log-likelihood per choice, in the order of the samples. The choice
// with the largest value is the answer; if several choices have this value, the first of them.
ChoiceScores choice_scores(const std::vector<ChoiceQuestion>& questions, std::span<const double> likelihoods);

class ChoiceScorer {
 public:
  // Returns null without evaluation.choices. The configuration must be resolved. Throws ConfigError with
  // train.label_smoothing or train.objective, because the loss is then not a likelihood, and for a model that
  // is not a decoder of a known family. Throws InputError if the file cannot be used.
  static std::unique_ptr<ChoiceScorer> of(const Config& config);

  // Distributes the samples. Call it after boost() and before run(). Collective over the world.
  void distribute(Booster& booster, const Boosted& boosted);
  // Evaluates one choice after the other, without gradients or dropout. Returns nothing if `ends` or `stops`
  // returned true, see Evaluator::run. Collective over the world.
  std::optional<ChoiceScores> run(Booster& booster, Boosted& boosted, const std::function<bool()>& ends,
                                  const std::function<bool()>& stops);

 private:
  explicit ChoiceScorer(std::shared_ptr<const ChoiceSamples> samples);

  std::shared_ptr<const ChoiceSamples> samples_;
  DataLoader loader_;
};

}  // namespace gantry
