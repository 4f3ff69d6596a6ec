// Support for a custom training loop around a boosted model (Loop::kOwn), whose backwards are not announced.
#pragma once

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/config.h"
#include "gantry/plugins/boosted.h"
#include "gantry/plugins/parallel_options.h"

namespace gantry {

// Throws ConfigError for features that only execute_pipeline() supports. These include a pipeline,
// parallel.context, parallel.expert, and ZeRO 2, which sends gradients within its backwards.
void refuse_what_needs_the_pipeline(const ParallelOptions& options, const ProcessGroupMesh& mesh);

// Turns the gradients that the backwards have added into the mean over the replicas: in the boosted
// optimizer's buffers or, without a boosted optimizer, in place. Throws UsageError if the buffers hold
// reduced sums that were not zeroed. Collective over dp.
void sync_own_loop(Boosted& boosted, const ProcessGroupMesh& mesh);

}  // namespace gantry
