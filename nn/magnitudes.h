// The arithmetic of DoRA (Liu et al., arXiv 2402.09353): the weight of an adapted layer is the rows of W + scale * B A,
// each divided by its norm and multiplied by a trained magnitude.
#pragma once

#include "gantry/comm/process_group.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// A low-rank change of a weight: scale * B A.
struct LowRank {
  torch::Tensor a, b;  // [rank, in], [out, rank]
  double scale = 1;
};

// Returns the norm of each row of `weight` [out, in] plus the change, in float32 or wider and without a graph. `group`:
// the ranks that hold parts of the rows, whose squares are all-reduced; null: the rows are complete.
torch::Tensor row_norms(const torch::Tensor& weight, const LowRank& change, ProcessGroup* group);

// Returns magnitude / norm for each row. As in PEFT, the norm is a constant of the backward pass.
torch::Tensor magnitude_ratio(const torch::Tensor& magnitude, const torch::Tensor& norms);

}  // namespace gantry::nn
