// Collectives that autograd differentiates. All are collective over the group, forward and backward; a backward uses
// only what its forward captured.
#pragma once

#include "gantry/comm/process_group.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// Forward: identity. Backward: sum over the group. Enters a column-parallel region (Megatron's f).
torch::Tensor copy_to_group(const torch::Tensor& input, ProcessGroup& group);
// Forward: sum over the group. Backward: identity. Leaves a row-parallel region (Megatron's g).
torch::Tensor reduce_from_group(const torch::Tensor& input, ProcessGroup& group);
// Forward: concatenation along dim by sizes. Backward: this rank's part.
torch::Tensor gather_from_group(const torch::Tensor& input, ProcessGroup& group, int dim, const Sizes& sizes);
// Forward: concatenation along dim by sizes. Backward: this rank's part of the sum over the group. Enters a region
// whose ranks have parts of the gradient.
torch::Tensor gather_to_group(const torch::Tensor& input, ProcessGroup& group, int dim, const Sizes& sizes);
// Forward: this rank's part along dim. Backward: concatenation.
torch::Tensor split_to_group(const torch::Tensor& input, ProcessGroup& group, int dim, const Sizes& sizes);

// Forward: this rank's part along dim of the sum over the group. Backward: concatenation.
torch::Tensor reduce_scatter_to_group(const torch::Tensor& input, ProcessGroup& group, int dim, const Sizes& sizes);

}  // namespace gantry
