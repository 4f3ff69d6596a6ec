// The scores of tokens whose keys decay by channels, in one pass forward and one backward. Operators of LibTorch's
// dispatcher (gantry::channel_scores_, gantry::channel_scores_backward_), with kernels for the CPU and for CUDA.
#pragma once

#include "gantry/tensors/tensor.h"

namespace gantry::kernels {

// Contiguous tensors [..., tokens, channels] of one type, float32 or float64, see ScoredTokens.
struct ChannelTokens {
  torch::Tensor query, key, sums;
};

// sum_d q_id k_jd e^{G_id - G_jd} for j <= i, and the same of keys with keys for j < i, [..., tokens, tokens];
// otherwise zero. No exponent is above 0. No graph is made.
struct ChannelScoresResult {
  torch::Tensor of_query, of_key;
};
ChannelScoresResult channel_scores(const ChannelTokens& of);

// Gradients of the inputs from those of the scores.
ChannelTokens channel_scores_backward(const ChannelTokens& of, const ChannelScoresResult& gradients);

}  // namespace gantry::kernels
