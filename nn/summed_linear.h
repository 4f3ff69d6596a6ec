// What leaves a row-split layer: a product whose sum over the ranks travels in pieces.
#pragma once

#include <optional>

#include "gantry/comm/process_group.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// x W^T, summed over the group: `part` [..., in local], `weight` [out, in local]. With `dim` each rank gets its part of
// the sum along it, as partition_sizes() has it, and the backward gathers. A piece's sum travels while the next piece
// is computed, and in the backward a piece of the gradient while the input's gradient of the one before is computed.
// The weight's gradient is one product, as linear()'s. Collective over the group, which outlives the graph. For what
// goes_in_pieces().
torch::Tensor summed_linear(const torch::Tensor& part, const torch::Tensor& weight, ProcessGroup& group,
                            std::optional<int> dim);

}  // namespace gantry::nn
