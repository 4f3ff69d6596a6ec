// Collectives with autograd support. All are collective over the group, forward and backward. A backward depends only
// on values that its forward captured.
#pragma once

#include "gantry/comm/process_group.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// Forward: identity. Backward: all-reduce over the group. Enters a column-parallel region (Megatron's f).
torch::Tensor copy_to_group(const torch::Tensor& input, ProcessGroup& group);
// Forward: all-reduce over the group. Backward: identity. Leaves a row-parallel region (Megatron's g).
torch::Tensor reduce_from_group(const torch::Tensor& input, ProcessGroup& group);
// Forward: all-gather along dim with these sizes. Backward: this rank's part.
torch::Tensor gather_from_group(const torch::Tensor& input, ProcessGroup& group, int dim, const Sizes& sizes);
// Forward: all-gather along dim with these sizes. Backward: reduce-scatter. Enters a region in which each rank has a
// summand of the gradient.
torch::Tensor gather_to_group(const torch::Tensor& input, ProcessGroup& group, int dim, const Sizes& sizes);
// Forward: this rank's part along dim. Backward: all-gather.
torch::Tensor split_to_group(const torch::Tensor& input, ProcessGroup& group, int dim, const Sizes& sizes);

// Forward: reduce-scatter along dim. Backward: all-gather.
torch::Tensor reduce_scatter_to_group(const torch::Tensor& input, ProcessGroup& group, int dim, const Sizes& sizes);

}  // namespace gantry
