// The output of a row-split layer: a product whose sum over the ranks is sent in pieces.
#pragma once

#include <optional>

#include "gantry/comm/process_group.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// x W^T, summed over the group: `part` [..., in local], `weight` [out, in local]. With `dim`, each rank gets
// its part of the sum along it, with the sizes of partition_sizes(), and the backward gathers. The sum of a
// piece is in flight while the next piece is computed. In the backward, a piece of the gradient is in flight
// while the input gradient of the previous piece is computed. The weight gradient is one product, as in
// linear(). Collective over the group, which outlives the graph. For cases in which goes_in_pieces() is true.
torch::Tensor summed_linear(const torch::Tensor& part, const torch::Tensor& weight, ProcessGroup& group,
                            std::optional<int> dim);

}  // namespace gantry::nn
