// The part of validate() that considers all ranks together: whether they can finish.
#pragma once

#include <vector>

#include "gantry/schedule/action_table.h"
#include "gantry/schedule/vocabulary_actions.h"

namespace gantry::schedule {

// Executes the rows of all ranks until all have finished. This proves that they always do: an action only waits for one
// fixed other action, so the order of execution cannot change the outcome. A message needs both ranks at once, as under
// rendezvous. Throws ConfigError with the cycle of waiting ranks if they cannot finish. All other checks of validate()
// must have passed. `vocabulary`: dependencies of the vocabulary passes, null without passes. With passes, the sender
// of a message does not block: the sends of a step never wait for their receives, and the passes synchronise the ranks
// in other orders.
void prove_progress(const Schedule& schedule, const ActionTable& table, const std::vector<int>& rank_of_stage,
                    const VocabularyNeeds* vocabulary = nullptr);

}  // namespace gantry::schedule
