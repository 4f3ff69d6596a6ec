// Activation recomputation (Chen et al., arXiv 1604.06174): the forward keeps only its input, and the backward runs it
// again.
#pragma once

#include <functional>
#include <vector>

#include "gantry/tensors/tensor.h"

namespace gantry::nn {

using Recomputed = std::function<torch::Tensor(const std::vector<torch::Tensor>&)>;

// part(inputs), without keeping what lies between. Both forwards know the same (nn/forward.h; outside a step with fresh
// random numbers for each call), so that dropout draws the same masks, and the backward gives inputs and parameters
// their gradients as the plain one would. A loss that the part adds counts once. Any number of inputs, of any type;
// undefined ones stay undefined. `part` reads nothing that changes until the backward, and outlives the graph by what
// it captures. Without gradients it is called as it is.
torch::Tensor recompute(const Recomputed& part, const std::vector<torch::Tensor>& inputs);

// The same for a part with several outputs, all of them defined.
using RecomputedAll = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>;
std::vector<torch::Tensor> recompute_all(const RecomputedAll& part, const std::vector<torch::Tensor>& inputs);

}  // namespace gantry::nn
