// Rotates pairs of features, as rotary position embeddings do, in one pass over the memory.
//
// It is an operator of LibTorch's dispatcher (gantry::rotate), with a kernel for the CPU and one for CUDA.
#pragma once

#include "gantry/tensors/kernels/rotate_element.h"
#include "gantry/tensors/tensor.h"

namespace gantry::kernels {

enum class PairOrder : int {
  kHalves,    // features i and i + pairs
  kAdjacent,  // features 2 i and 2 i + 1
};
enum class Turn : int { kForward, kBack };  // by the angles, or by the negative ones

// heads [samples, heads, tokens, size] -> the same shape, with the order of the dimensions in memory that `heads` has.
// cosine, sine: [tokens, pairs] or [samples, 1, tokens, pairs], of the type of `heads`, 2 pairs <= size. Features
// behind the pairs are copied. Half precisions are computed in float32 and rounded once. No graph is made.
torch::Tensor rotate(const torch::Tensor& heads, const torch::Tensor& cosine, const torch::Tensor& sine,
                     PairOrder order, Turn turn);

// The memory of a rotation of `heads` into `out`, for the kernels.
RotatedHeads rotated_heads(const torch::Tensor& out, const torch::Tensor& heads, const torch::Tensor& cosine,
                           bool adjacent, bool back);

}  // namespace gantry::kernels
