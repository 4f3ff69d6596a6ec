// The part of a delta rule by chunks that does not depend on how keys decay (arXiv 2406.06484, section 3; arXiv
// 2412.06464, section 3.3): gated delta and Kimi delta attention are of this form.
#pragma once

#include "gantry/nn/mixers/chunks.h"

namespace gantry::nn {

// Tensors of chunks, [samples, chunks, heads, size, ...] each. Decays are factors from 0 to 1, and 0 from other
// documents.
struct DeltaChunks {
  torch::Tensor scores;      // [..., size, size]: q_i k_j, decayed from token j to token i; 0 for j > i
  torch::Tensor key_scores;  // [..., size, size]: k_i k_j, decayed the same way; read for j < i
  torch::Tensor query, key;  // [..., size, keys], decayed from the end of the chunk before to the token
  torch::Tensor key_to_end;  // [..., size, keys], decayed from the token to the end of the chunk
  torch::Tensor decay;       // [samples, chunks, heads, keys or 1]: of the chunk
  torch::Tensor value;       // [..., size, values]
  torch::Tensor beta;        // [..., size]
};
// Out [samples, chunks, heads, size, values]; `state` [samples, heads, keys, values] or undefined.
RecurrenceResult delta_chunks(const DeltaChunks& of, const torch::Tensor& state);

// One token of a delta rule, float32 or wider: S' = e^decay S, u = beta (v - S'^T k), S = S' + k u^T, out = S^T q.
struct DeltaToken {
  torch::Tensor query, key;  // [samples, heads, keys]
  torch::Tensor value;       // [samples, heads, values]
  torch::Tensor decay;       // logarithm, [samples, heads, keys or 1]
  torch::Tensor beta;        // [samples, heads]
};
// Out [samples, heads, values].
RecurrenceResult delta_token(const DeltaToken& of, const torch::Tensor& state);

}  // namespace gantry::nn
