// Attention over keys that are all on this rank. The methods of context parallelism use it.
#pragma once

#include "gantry/nn/attention.h"

namespace gantry::nn {

// The same as attention(), without a cache and recomputation. With `options.sequence`, the queries are this
// rank's, and the keys are those of the full sequence in order.
torch::Tensor attention_core(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                             const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                             const DropoutImpl& dropout);

}  // namespace gantry::nn
