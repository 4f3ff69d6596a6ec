// The mean loss of a distillation over the tokens that count.
#pragma once

#include <functional>

#include "gantry/plugins/criterion.h"

namespace gantry {

// A number of each token, [samples, tokens], also of those that do not count.
using TokenNumbers =
    std::function<torch::Tensor(const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split)>;

// The mean of alpha CE + (1 - alpha) divergence + added over the tokens of which `labels` [samples, tokens] is not
// -100. The labels are aligned with the output "logits". CE is the cross entropy of the labels. `added`: none if empty.
Criterion distilled_tokens(double alpha, const TokenNumbers& divergences, const TokenNumbers& added = {});

// The ranks with the other columns of the logits; null: this rank has all of them.
const SplitDim* split_logits(const SplitOutputs& split);

}  // namespace gantry
