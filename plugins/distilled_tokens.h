// The mean loss of a distillation over the tokens that count.
#pragma once

#include <functional>

#include "gantry/plugins/criterion.h"

namespace gantry {

// The divergence of each token, [samples, tokens], also of those that do not count.
using TokenDivergences =
    std::function<torch::Tensor(const torch::Tensor& logits, const TensorDict& batch, const SplitOutputs& split)>;

// The mean of alpha CE + (1 - alpha) divergence over the tokens of which `labels` [samples, tokens] is not -100. The
// labels are aligned with the logits. CE is the cross entropy of the labels.
Criterion distilled_tokens(double alpha, const TokenDivergences& divergences);

// The ranks with the other columns of the logits; null: this rank has all of them.
const SplitDim* split_logits(const SplitOutputs& split);

}  // namespace gantry
