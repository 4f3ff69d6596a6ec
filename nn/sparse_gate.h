// Gates of which a fraction of the features is zero (the "Gaussian top-k" of Gemma 3n, arXiv 2506.06644).
#pragma once

#include "gantry/nn/linear.h"

namespace gantry::nn {

// relu(gate - mean - quantile(sparsity) * deviation) over the features of a token, where the quantile is that of the
// normal distribution. `gate` [..., local features] is the output of `projection`; if that is sharded by column, mean
// and standard deviation cover the features of all ranks, and the call is collective over tp, forward and backward.
torch::Tensor sparse_gate(const torch::Tensor& gate, double sparsity, const Linear& projection);

}  // namespace gantry::nn
