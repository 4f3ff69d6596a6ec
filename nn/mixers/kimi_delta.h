// Kimi delta attention, a delta rule with a decay for each channel of the keys (Kimi Linear, arXiv 2510.26692).
#pragma once

#include "gantry/nn/mixers/chunks.h"

namespace gantry::nn {

struct KimiDeltaInputs {
  torch::Tensor query, key;  // [samples, tokens, heads, keys], not normalised: unit length and q / sqrt(keys) inside
  torch::Tensor value;       // [samples, tokens, heads, values]
  torch::Tensor decay;       // g, the logarithm, at most 0: [samples, tokens, heads, keys]
  torch::Tensor beta;        // from 0 to 1: [samples, tokens, heads]
};

// S' = diag(e^{g_t}) S_{t-1}, S_t = S' + beta_t k_t (v_t - S'^T k_t)^T and out_t = S_t^T q_t for each head. `state`:
// [samples, heads, keys, values], undefined: zeros. `documents`: int [samples, tokens]; a token that differs from the
// one before begins a document with a state of zero, and the first document continues `state`; undefined: one document.
// Computes in float32 or wider by chunks of `chunk` tokens, with one state per chunk. No exponent is above 0, see
// kernels::channel_scores().
RecurrenceResult kimi_delta(const KimiDeltaInputs& inputs, const torch::Tensor& state = {},
                            const torch::Tensor& documents = {}, std::int64_t chunk = kChunkTokens);
// The same for inputs of one token.
RecurrenceResult kimi_delta_step(const KimiDeltaInputs& inputs, const torch::Tensor& state = {});

}  // namespace gantry::nn
