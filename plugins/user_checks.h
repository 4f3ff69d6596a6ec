// Checks for mistakes of the program that would silently change its results.
#pragma once

#include <string>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/plugins/criterion.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/batch.h"
#include "gantry/tensors/entry_reads.h"

namespace gantry {

// Checks that outputs of the last stage are full, that is, the same on every rank of tp, unless the policy
// lists them as split. Throws ConfigError, naming split_outputs, if one differs. Returns false if all
// compared values were zero. Collective over tp.
bool check_full_outputs(const TensorDict& outputs, const SplitOutputs& split, const StageModule& model,
                        const ProcessGroupMesh& mesh);

// Throws UsageError if the criterion returned a mean and the microbatch has ignored labels: microbatches
// would be weighted wrongly.
void refuse_mean_over_ignored(const TensorDict& batch);

// Warns on rank 0 if a batch has document_ids that no rank has read: packed documents then see each other. Collective
// over the world.
void warn_of_unread_documents(const Batch& batch, const EntryReads& reads, const ProcessGroupMesh& mesh);

// The names of parameters that no backward has reached and whose gradient is zero, in the model's order. After a sync.
// Collective over the world.
std::vector<std::string> parameters_without_gradient(const GradientBuffers& gradients, const StageModule& model,
                                                     const ProcessGroupMesh& mesh);

}  // namespace gantry
