// Lightning attention, the linear attention of MiniMax-01 (arXiv 2501.08313; Qin et al., arXiv 2405.17381).
#pragma once

#include "gantry/nn/mixers/chunks.h"

namespace gantry::nn {

struct LightningInputs {
  torch::Tensor query, key;  // [samples, tokens, heads, keys], after their activation; no scale is applied
  torch::Tensor value;       // [samples, tokens, heads, values]
  torch::Tensor slope;       // [heads], at least 0: the state decays by e^{-slope} per token
};

// S_t = e^{-slope} S_{t-1} + k_t v_t^T and out_t = S_t^T q_t for each head. `state`: [samples, heads, keys, values],
// undefined: zeros. `documents`: int [samples, tokens]; a token that differs from the one before begins a document with
// a state of zero, and the first document continues `state`; undefined: one document. Computes in float32 or wider by
// chunks of `chunk` tokens, on which the result does not depend, with one state per chunk.
RecurrenceResult lightning_attention(const LightningInputs& inputs, const torch::Tensor& state = {},
                                     const torch::Tensor& documents = {}, std::int64_t chunk = kChunkTokens);
// The same for inputs of one token.
RecurrenceResult lightning_attention_step(const LightningInputs& inputs, const torch::Tensor& state = {});

}  // namespace gantry::nn
