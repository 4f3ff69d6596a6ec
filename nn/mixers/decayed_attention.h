// Linear attention whose state decays by one number per head and token: S_t = e^{g_t} S_{t-1} + v_t k_t^T,
// o_t = S_t q_t. SSD and lightning attention are of this form; the chunks are those of Dao, Gu, arXiv 2405.21060.
#pragma once

#include "gantry/nn/mixers/chunks.h"

namespace gantry::nn {

// Head h of the values reads group h / (heads / groups) of queries and keys.
struct DecayedAttention {
  torch::Tensor query, key;  // [samples, tokens, groups, keys]
  torch::Tensor value;       // [samples, tokens, heads, values]
  torch::Tensor decay;       // g, at most 0: [samples or 1, tokens, heads], float32 or wider
};

// `state`: [samples, heads, values, keys], undefined: zeros; the result's has this shape too. `documents`: int
// [samples, tokens], as for document_numbers(); the state is zero before the first token of further documents.
RecurrenceResult decayed_attention(const DecayedAttention& of, const torch::Tensor& state,
                                   const torch::Tensor& documents, std::int64_t chunk);
// The same for one token, without documents.
RecurrenceResult decayed_attention_step(const DecayedAttention& of, const torch::Tensor& state);

}  // namespace gantry::nn
