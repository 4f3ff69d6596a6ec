// The scores of a reference model, before the first step of a run with preferences.
#pragma once

#include "gantry/booster/booster.h"
#include "gantry/plugins/preference_loss.h"

namespace gantry {

// Computes the log-probabilities of all completions of the run's data, and of `held_out` (null: there are none), under
// the reference model. Its weights are those of train.objective.reference, else of model.path without adapters, else
// the initial ones. They replace the weights of `boosted`; the caller loads its own ones again. Collective over the
// world.
void score_reference(const Config& config, Booster& booster, Boosted& boosted, const DataLoader* held_out,
                     const std::shared_ptr<ReferenceScores>& scores);

}  // namespace gantry
