// Attention by blocks: a query's softmax over all keys from those over some of them, by their log-sum-exp, and the
// gradients of one block from the final output and log-sum-exp alone (Dao et al., arXiv 2205.14135; Liu et al., arXiv
// 2310.01889).
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

// What all blocks of one attention have in common.
struct BlockRules {
  AttentionOptions options;  // masks and documents are the part's; a bias is of these heads, without a graph
  HeadRange heads, key_heads;
  double drop = 0;  // probability with which a weight is left out
  std::string dropout_name;
  RandomContext random;
};

// Queries [samples, heads, tokens, size] of the rank, and keys and values [samples, key heads, tokens, size] of one of
// the ranks, in the order in which those ranks hold them.
struct AttentionBlock {
  torch::Tensor query, key, value;
  int from = 0;  // the rank of the sequence's group that the keys are of
};

// Of all blocks so far, in float32 or wider.
AttentionSums empty_sums(const torch::Tensor& query, std::int64_t value_size);

// Takes a block into the sums.
void attend_block(AttentionSums& sums, const AttentionBlock& block, const BlockRules& rules);

// The final sums' gradient: of the output, and what each query's own is (the sum of out * gradient).
struct SumsGradient {
  torch::Tensor out, own;
};

// Of one block, from the final sums. That of the bias is added to `of_bias`, its shape in float32 or wider; undefined
// where there is none.
AttentionGradients block_gradients(const AttentionSums& sums, const SumsGradient& gradient, const AttentionBlock& block,
                                   const BlockRules& rules, const torch::Tensor& of_bias);

}  // namespace gantry::nn
