// The gated delta rule (Yang, Kautz, Hatamizadeh: Gated Delta Networks, arXiv 2412.06464).
#pragma once

#include "gantry/nn/mixers/chunks.h"

namespace gantry::nn {

// Key head h serves the value heads h r to h r + r - 1, with r = value heads / key heads.
struct GatedDeltaInputs {
  torch::Tensor query,
      key;              // [samples, tokens, key heads, keys], not normalised: unit length and q / sqrt(keys) inside
  torch::Tensor value;  // [samples, tokens, value heads, values]
  torch::Tensor decay;  // g, the logarithm, at most 0: [samples, tokens, value heads]
  torch::Tensor beta;   // from 0 to 1: [samples, tokens, value heads]
};

// S_t = e^{g_t} (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T and out_t = S_t^T q_t for each value head. `state`:
// [samples, value heads, keys, values], undefined: zeros. `documents`: int [samples, tokens]; a token that differs from
// the one before begins a document with a state of zero, and the first document continues `state`; undefined: one
// document. Computes in float32 or wider by chunks of `chunk` tokens, with memory for value heads * chunk numbers per
// token and one state per chunk.
RecurrenceResult gated_delta(const GatedDeltaInputs& inputs, const torch::Tensor& state = {},
                             const torch::Tensor& documents = {}, std::int64_t chunk = kChunkTokens);
// The same for inputs of one token.
RecurrenceResult gated_delta_step(const GatedDeltaInputs& inputs, const torch::Tensor& state = {});

}  // namespace gantry::nn
