// A linear recurrence of single numbers, by chunks.
#pragma once

#include "gantry/nn/mixers/chunk_tokens.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// h_t = decay_t h_{t-1} + input_t for each channel, [samples, tokens, channels], from `initial` [samples, channels].
// Returns all h_t. The decays are from 0 to 1. The tokens of a chunk follow one another, and all chunks are computed
// side by side; then their states follow one another.
torch::Tensor linear_scan(const torch::Tensor& decay, const torch::Tensor& input, const torch::Tensor& initial,
                          std::int64_t chunk = kChunkTokens);

}  // namespace gantry::nn
