// The part of validate() that looks at all ranks together: can they finish?
#pragma once

#include <vector>

#include "gantry/schedule/action_table.h"
#include "gantry/schedule/vocabulary_actions.h"

namespace gantry::schedule {

// Steps every rank through its row until all have finished, which proves that they always do: an action only ever waits
// for one fixed other action, so the order of the steps can't change the outcome. A message takes both ranks at once,
// as under rendezvous. ConfigError with the cycle of who waits for whom where they can't finish. Everything else of
// validate() must hold already.
// `vocabulary`: what passes of the vocabulary need, null where there are none. With them a message's sender goes on: a
// step's sends never wait for their receives, and the passes keep ranks together in other orders.
void prove_progress(const Schedule& schedule, const ActionTable& table, const std::vector<int>& rank_of_stage,
                    const VocabularyNeeds* vocabulary = nullptr);

}  // namespace gantry::schedule
