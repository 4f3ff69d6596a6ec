// State space duality, the recurrence of Mamba-2 (Dao, Gu: Transformers are SSMs, arXiv 2405.21060).
#pragma once

#include "gantry/nn/mixers/chunks.h"

namespace gantry::nn {

// Head h reads group h / (heads / groups) of b and c.
struct SsdInputs {
  torch::Tensor x;     // [samples, tokens, heads, size], after convolution and activation
  torch::Tensor dt;    // [samples, tokens, heads], above 0: after bias, softplus and limits
  torch::Tensor a;     // [heads], below 0: -exp(A_log)
  torch::Tensor b, c;  // [samples, tokens, groups, state]
  torch::Tensor d;     // [heads]: factor of the skip connection; undefined: none
};

// S_t = e^{a dt_t} S_{t-1} + dt_t x_t b_t^T and out_t = S_t c_t + d x_t for each head. `state`: [samples, heads, size,
// state size], undefined: zeros. `documents`: int [samples, tokens]; a token that differs from the one before begins a
// document with a state of zero, and the first document continues `state`; undefined: one document. Computes in float32
// or wider by chunks of `chunk` tokens, with memory for heads * chunk numbers per token and one state per chunk.
RecurrenceResult ssd(const SsdInputs& inputs, const torch::Tensor& state = {}, const torch::Tensor& documents = {},
                     std::int64_t chunk = kChunkTokens);
// The same for inputs of one token.
RecurrenceResult ssd_step(const SsdInputs& inputs, const torch::Tensor& state = {});

}  // namespace gantry::nn
