// Reductions over ranks if one device holds the terms of all ranks. One kernel adds them, with results that
// are bitwise identical to comm/reduce_kernels, which adds on the host.
//
// It is an operator of LibTorch's dispatcher (gantry::reduce_by_rank_), with a kernel for the CPU and one for
// CUDA.
#pragma once

#include <vector>

#include "gantry/comm/operation.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// out = terms[0] op terms[1] op ..., all of the same type and size and contiguous. `out` may use the memory
// of one of the terms. Does not wait for the device. Throws UsageError for types that cannot be reduced.
void reduce_by_rank(torch::Tensor& out, const std::vector<torch::Tensor>& terms, ReduceOp op);

}  // namespace gantry
