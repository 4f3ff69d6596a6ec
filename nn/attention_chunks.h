// Chunked attention (Llama 4): a token attends to the tokens of its own chunk.
#pragma once

#include "gantry/nn/attention.h"

namespace gantry::nn {

// Returns `options` with the chunks of `options.chunk` tokens as documents, within those that it has. Unchanged without
// chunks. `query`: [samples, heads, tokens, head size].
AttentionOptions within_chunks(const AttentionOptions& options, const torch::Tensor& query);

}  // namespace gantry::nn
