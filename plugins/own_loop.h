// What a boosted model needs where a loop of the user's runs it (Loop::kOwn): backwards that nobody announces.
#pragma once

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/config.h"
#include "gantry/plugins/boosted.h"
#include "gantry/plugins/parallel_options.h"

namespace gantry {

// ConfigError for what only execute_pipeline does: a pipeline, parts of sequences, and ZeRO 2, which sends gradients
// within its backwards.
void refuse_what_needs_the_pipeline(const ParallelOptions& options, const ProcessGroupMesh& mesh);

// Makes the gradients that the backwards have added the mean over the replicas: in the boosted optimizer's buffers, or
// in place where none was boosted. UsageError where the buffers hold sums that were not zeroed. Collective over dp.
void sync_own_loop(Boosted& boosted, const ProcessGroupMesh& mesh);

}  // namespace gantry
