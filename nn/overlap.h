// Gradients of elements that several ranks of a group hold, because they share a KV head.
#pragma once

#include "gantry/comm/process_group.h"
#include "gantry/core/placement.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// `local`: this rank's ranges of a tensor along placement.dim. Replaces each element that several ranks hold
// by the sum over these ranks, which is bitwise identical on all of them. Collective over the group.
void sum_overlaps(torch::Tensor& local, const ShardSpec& placement, ProcessGroup& group);

// Forward: identity. Backward: sum_overlaps. `placement` and `group` outlive the graph. Collective in the backward.
torch::Tensor with_summed_overlaps(const torch::Tensor& local, const ShardSpec& placement, ProcessGroup& group);

}  // namespace gantry
