// Numbers of a step that its loss of preferences needs in advance.
#pragma once

#include "gantry/booster/booster.h"
#include "gantry/plugins/objective_parts.h"

namespace gantry {

// The batch of kto with the completions of other samples: kl_input_ids and kl_labels as input_ids and labels.
Batch with_other_completions(Batch batch);

// Computes parts.step for `batch`, this replica's part of the step, before execute_pipeline() is called with it. For
// kto this is one forward pass, without dropout, with the completions of other samples. Does nothing if parts.step is
// null. Collective over the world.
void prepare_step(const ObjectiveParts& parts, const Batch& batch, Booster& booster, Boosted& boosted);

}  // namespace gantry
