// Random numbers that are drawn in the memory of a tensor: by the host, or by a kernel of its device. An
// element depends only on the key and on its index in the full tensor, so all ranks and devices draw bitwise
// identical numbers.
//
// It is an operator of LibTorch's dispatcher (gantry::draw_), with a kernel for the CPU and one for CUDA.
#pragma once

#include "gantry/tensors/kernels/draw_element.h"
#include "gantry/tensors/tensor.h"

namespace gantry::kernels {

// Fills `out`, a part of a larger tensor. Its element (i0, i1, ...) has the index first + i0 * in_full[0] +
// i1 * in_full[1] + ... in the full tensor. The host does not wait for the device.
void draw(torch::Tensor out, const Drawn& drawn, std::int64_t first, at::IntArrayRef in_full);

// The layout of `out` in memory and in the full tensor. Dims that are contiguous in both are joined. Throws
// UsageError if more than Box::kMaxDims dims remain.
Box box_of(const torch::Tensor& out, std::int64_t first, at::IntArrayRef in_full);

}  // namespace gantry::kernels
