// Cross entropies of single tokens.
#pragma once

#include "gantry/plugins/criterion.h"

namespace gantry {

// Returns the cross entropy of each token in the shape of the labels, from the output "logits", which may be
// sharded. It is 0 for labels of -100.
torch::Tensor token_losses(const torch::Tensor& logits, const torch::Tensor& labels, const SplitOutputs& split);

}  // namespace gantry
