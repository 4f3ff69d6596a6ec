// Sums over ranks where a device holds every rank's terms: one kernel, with the bits of comm/reduce_kernels, which adds
// them on the host.
//
// It is an operator of LibTorch's dispatcher (gantry::reduce_by_rank_), with a kernel for the CPU and one for CUDA.
#pragma once

#include <vector>

#include "gantry/comm/operation.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// out = terms[0] op terms[1] op ..., all of one type and size and contiguous; `out` may be the memory of one of them.
// Nobody waits for a device. UsageError for types without a sum.
void reduce_by_rank(torch::Tensor& out, const std::vector<torch::Tensor>& terms, ReduceOp op);

}  // namespace gantry
