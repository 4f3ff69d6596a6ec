// Activation recomputation (Chen et al., arXiv 1604.06174): only the inputs of a part are kept, and the
// backward runs its forward again.
#pragma once

#include <functional>
#include <vector>

#include "gantry/tensors/tensor.h"

namespace gantry::nn {

using Recomputed = std::function<torch::Tensor(const std::vector<torch::Tensor>&)>;

// part(inputs), without keeping the intermediate tensors. Both forwards have the same state (nn/forward.h),
// so that dropout draws the same masks. Outside of a step, each call has new random numbers. The backward
// computes the same gradients of inputs and parameters as without recomputation. A loss that the part adds
// counts once. Any number of inputs, of any type; undefined ones stay undefined. `part` must not read
// anything that changes before the backward, and its captures must stay valid as long as the graph. If
// gradients are disabled, it is called directly.
torch::Tensor recompute(const Recomputed& part, const std::vector<torch::Tensor>& inputs);

// The same for a part with several outputs, all of them defined.
using RecomputedAll = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>;
std::vector<torch::Tensor> recompute_all(const RecomputedAll& part, const std::vector<torch::Tensor>& inputs);

}  // namespace gantry::nn
