// Attention where ranks share a sequence, by the method that its part states.
#pragma once

#include "gantry/nn/attention.h"

namespace gantry::nn {

// What this rank attends with: where ranks exchange heads, some heads of the tokens that they have together.
struct ContextQueries {
  HeadRange heads;
  torch::Tensor places;  // int64, of the queries in the sequence
};
ContextQueries context_queries(const SequencePart& part, const HeadRange& held);

// attention() of this rank's tokens over all of the sequence, without a cache and recomputation: options.sequence is
// there. Collective over the part's group, forward and backward.
torch::Tensor context_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                                const DropoutImpl& dropout);

// attention() with a cache, where ranks share a text that is continued: token p is kept by the rank p modulo their
// number. Of a prompt each rank attends with its part, by the part's method, and then keys and values go where they are
// kept. Of new tokens, which all ranks compute, each attends to what it keeps, and the results merge by their
// log-sum-exp. With a window, what later tokens don't see is let go of.
torch::Tensor continued_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                  const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                                  const DropoutImpl& dropout);

// By a ring: in step t each rank attends to the tokens of the rank t before it, while the next ones travel. The
// gradients of keys and values travel one step behind, in float32 or wider.
torch::Tensor ring_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                             const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                             const DropoutImpl& dropout);

// By an exchange: each rank gets, of some of the heads, all tokens of the ranks that exchange, and gives back what it
// made of them. Where those have a part of the sequence together, they attend by a ring behind it.
torch::Tensor ulysses_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                                const DropoutImpl& dropout);

}  // namespace gantry::nn
