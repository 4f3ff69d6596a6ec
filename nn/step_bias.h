// Initial values of dt_bias of Mamba and Mamba-2.
#pragma once

#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// Returns [count], the inverse of softplus for steps that are spread evenly over [first, last] on a logarithmic scale.
// The authors sample them from the same distribution; fixed values do not depend on the layout. first = 0: ones.
torch::Tensor initial_step_bias(std::int64_t count, double first, double last);

}  // namespace gantry::nn
