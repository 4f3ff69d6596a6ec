// Attention over blocks of keys. The results of blocks are merged by their log-sum-exp into the softmax over
// all keys. The gradients of a block need only the final output and log-sum-exp of the queries (Dao et al.,
// arXiv 2205.14135; Liu et al., arXiv 2310.01889).
#pragma once

#include <string>
#include <vector>

#include "gantry/core/sharding/sequence_shard.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/attention_kernels.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/tensors/random_context.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// The settings that all blocks of one attention share.
struct BlockRules {
  AttentionOptions options;  // with the part's masks and documents, and a bias of these heads without a graph
  HeadRange heads, key_heads;
  double drop = 0;  // dropout probability of a weight
  std::string dropout_name;
  RandomContext random;
};

// Queries [samples, heads, tokens, size] of this rank, and keys and values [samples, KV heads, tokens, size]
// of one rank, each in the order in which the rank holds them.
struct AttentionBlock {
  torch::Tensor query, key, value;
  int from = 0;  // the rank, in the group of the sequence, that holds the keys
};

// The sums before the first block, in float32 or wider.
AttentionSums empty_sums(const torch::Tensor& query, std::int64_t value_size);

// Adds a block to the sums.
void attend_block(AttentionSums& sums, const AttentionBlock& block, const BlockRules& rules);

// The gradient of the final output, and for each query the sum of out * gradient (`own`).
struct SumsGradient {
  torch::Tensor out, own;
};

// Returns the gradients of one block, from the final sums. The gradient of the bias is added to `of_bias`,
// which has the shape of the bias, in float32 or wider; undefined: no bias.
AttentionGradients block_gradients(const AttentionSums& sums, const SumsGradient& gradient, const AttentionBlock& block,
                                   const BlockRules& rules, const torch::Tensor& of_bias);

}  // namespace gantry::nn
