// The labels of multi-token prediction in a step. The loss of each depth is a mean over its own labels. The
// sums of the losses are therefore weighted by the numbers of labels before the first backward.
#pragma once

#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/plugins/criterion.h"
#include "gantry/tensors/batch.h"

namespace gantry {

// Adds the entries of nn/mtp_tokens.h to a batch of full sequences. `criterion` aligns its labels.
void add_mtp_tokens(Batch& batch, const Criterion& criterion, int depths);

// Returns, for each depth, the number of counted labels of the step divided by the number of labels of this
// depth. `batch`: the batch of this replica. `counts`: true on one rank of each replica, which has the
// labels. Collective over the batch axes and pp. Throws UsageError for a criterion whose number of labels is
// unknown before the step.
std::vector<double> mtp_ratios(const Batch& batch, const Criterion& criterion, int depths, bool counts,
                               const ProcessGroupMesh& mesh);

}  // namespace gantry
