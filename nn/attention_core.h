// Attention over keys that are all here: what the methods of context parallelism stand on.
#pragma once

#include "gantry/nn/attention.h"

namespace gantry::nn {

// As attention(), without a cache and recomputation. With `options.sequence` the queries are this rank's, and the keys
// those of the whole sequence in order.
torch::Tensor attention_core(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                             const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                             const DropoutImpl& dropout);

// What query times key is multiplied with.
double scale_of_scores(const AttentionOptions& options, const torch::Tensor& query);

// Of each key head held here, all of its query heads are.
bool holds_whole_groups(const HeadRange& heads, const HeadRange& key_heads);

// The key head of each query head held here, by index into the held ones.
std::vector<std::int64_t> key_of_each_query(const HeadRange& heads, const HeadRange& key_heads);

}  // namespace gantry::nn
