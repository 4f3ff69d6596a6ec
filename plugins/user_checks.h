// Slips of a user's that would give other numbers without a word, found where they are made.
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

// Outputs of the last stage that the policy does not call split are whole: the same on every rank of tp. ConfigError
// naming split_outputs for one that is not. False while there was nothing but zeros to compare. Collective over tp.
bool check_full_outputs(const TensorDict& outputs, const SplitOutputs& split, const StageModule& model,
                        const ProcessGroupMesh& mesh);

// UsageError for a criterion's mean where the microbatch has ignored labels, so that microbatches weigh unequally.
void refuse_mean_over_ignored(const TensorDict& batch);

// Warns on rank 0 if a batch has document_ids that no rank has read: packed documents then see each other. Collective
// over the world.
void warn_of_unread_documents(const Batch& batch, const EntryReads& reads, const ProcessGroupMesh& mesh);

// The names of parameters that no backward has reached and whose gradient is zero, in the model's order. After a sync.
// Collective over the world.
std::vector<std::string> parameters_without_gradient(const GradientBuffers& gradients, const StageModule& model,
                                                     const ProcessGroupMesh& mesh);

}  // namespace gantry
