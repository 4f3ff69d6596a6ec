// Multiple choice by log-likelihood in the midst of a run (evaluation.choices).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "gantry/booster/booster.h"
#include "gantry/data/choices.h"
#include "gantry/trainer/metrics.h"

namespace gantry {

// By the choices' log-likelihoods in the order of the samples: of equal ones the first counts.
ChoiceScores choice_scores(const std::vector<ChoiceQuestion>& questions, std::span<const double> likelihoods);

class ChoiceScorer {
 public:
  // Null without evaluation.choices. The configuration is resolved. ConfigError beside label_smoothing, under which the
  // loss is no likelihood, and for a model that is not trained on tokens; InputError for the file.
  static std::unique_ptr<ChoiceScorer> of(const Config& config);

  // Distributes the samples; after boost, before run(). Collective over the world.
  void distribute(Booster& booster, const Boosted& boosted);
  // Without gradients or dropout, one choice after the other. Nothing where `ends` or `stops` said yes, as in
  // Evaluator::run. Collective over the world.
  std::optional<ChoiceScores> run(Booster& booster, Boosted& boosted, const std::function<bool()>& ends,
                                  const std::function<bool()>& stops);

 private:
  explicit ChoiceScorer(std::shared_ptr<const ChoiceSamples> samples);

  std::shared_ptr<const ChoiceSamples> samples_;
  DataLoader loader_;
};

}  // namespace gantry
