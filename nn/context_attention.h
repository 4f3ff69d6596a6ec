// Attention if ranks share a sequence, by the method of the SequencePart.
#pragma once

#include "gantry/nn/attention.h"

namespace gantry::nn {

// The queries that this rank computes. If ranks exchange heads, these are some of the heads, of all tokens of
// these ranks.
struct ContextQueries {
  HeadRange heads;
  torch::Tensor places;  // int64, positions of the queries in the sequence
};
ContextQueries context_queries(const SequencePart& part, const HeadRange& held);

// attention() of this rank's tokens over the full sequence, without a cache and recomputation. Requires
// options.sequence. Collective over the part's group, forward and backward.
torch::Tensor context_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                                const DropoutImpl& dropout);

// attention() with a cache, if ranks share a text that is continued: token p is kept by the rank p modulo
// their number. For a prompt, each rank attends with its part, by the part's method, and the keys and values
// are sent to the ranks that keep them. New tokens are computed by all ranks: each rank attends to the tokens
// that it keeps, and the results are merged by their log-sum-exp. With a window, tokens that later tokens do
// not see are dropped.
torch::Tensor continued_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                  const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                                  const DropoutImpl& dropout);

// Ring attention: in step t, each rank attends to the tokens of the rank t before it, while the next ones are
// in flight. The gradients of keys and values follow one step later, in float32 or wider.
torch::Tensor ring_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                             const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                             const DropoutImpl& dropout);

// Attention by an exchange: each rank receives some of the heads for all tokens of the exchanging ranks, and
// returns the results. If these ranks together hold only a part of the sequence, they use ring attention
// after the exchange.
torch::Tensor ulysses_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                                const DropoutImpl& dropout);

}  // namespace gantry::nn
