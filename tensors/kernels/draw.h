// Random numbers drawn where a tensor lies: on the host, or by a kernel of its device. An element depends on the key
// and its number in the full tensor alone, so every rank and every device draws the same bits.
//
// It is an operator of LibTorch's dispatcher (gantry::draw_), with a kernel for the CPU and one for CUDA.
#pragma once

#include "gantry/tensors/kernels/draw_element.h"
#include "gantry/tensors/tensor.h"

namespace gantry::kernels {

// Fills `out`, a part of a larger tensor. Its element at index (i0, i1, ...) has the number first + i0 * in_full[0] +
// i1 * in_full[1] + ... in the full tensor. Nobody waits for a device.
void draw(torch::Tensor out, const Drawn& drawn, std::int64_t first, at::IntArrayRef in_full);

// How `out` lies; its dims joined where they lie together. UsageError beyond Box::kMaxDims dims.
Box box_of(const torch::Tensor& out, std::int64_t first, at::IntArrayRef in_full);

}  // namespace gantry::kernels
