// Sums over ranks by kernels of a device, with the bits of comm/reduce_kernels: by rank, half precisions in float32
// rounded once.
#pragma once

#include <vector>

#include "gantry/comm/operation.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// out = terms[0] op terms[1] op ..., of two terms at least; `out` may be the memory of terms[rank].
void sum_by_rank(torch::Tensor& out, const std::vector<torch::Tensor>& terms, int rank, ReduceOp op);

}  // namespace gantry
