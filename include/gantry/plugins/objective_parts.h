// The state that the loss of train.objective shares with the run.
#pragma once

#include <memory>

#include "gantry/plugins/distillation_loss.h"
#include "gantry/plugins/preference_loss.h"

namespace gantry {

// Numbers that depend on all samples of a step, for losses that need them before the first microbatch; see
// prepare_step() (booster/preference_step.h).
struct StepNumbers {
  double divergence = 0;  // kto: estimated divergence of the model from the reference, at least 0
  // If ObjectiveConfig::chosen_weight() is not 0: number of pairs per counted token of the chosen texts. With the
  // labels of prompts all tokens count, otherwise those of completions.
  double pairs_per_token = 0;
};

// The parts of an objective's loss.
struct ObjectiveParts {
  std::shared_ptr<ReferenceScores> reference;  // null for objectives without a reference model
  std::shared_ptr<RewardMeter> rewards;        // null: rewards are not measured
  std::shared_ptr<StepNumbers> step;           // for kto and a chosen_weight(); null for the others
  std::shared_ptr<TeacherLogits> teacher;      // for distill; null for the others
};

// The parts that `objective` needs, and for preferences a meter. They are still empty.
ObjectiveParts objective_parts(const ObjectiveConfig& objective);

}  // namespace gantry
