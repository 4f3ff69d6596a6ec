// Converts activations between layouts over a group (core/layout.h).
//
// The gradient of a Replicate tensor is the full gradient on every rank. The gradient of a Shard is the corresponding
// part, and the gradient of a Partial is the full gradient. Every conversion therefore has exactly one backward.
#pragma once

#include <string>

#include "gantry/comm/process_group.h"
#include "gantry/core/layout.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// Converts any layout to any other, with autograd. The output of a Shard is partitioned as evenly as possible, and the
// first ranks get the remainder. An input Shard may have any sizes, including 0. Collective over the group.
torch::Tensor redistribute(const torch::Tensor& tensor, ProcessGroup& group, const Layout& from, const Layout& to);

namespace nn {

// Returns the sizes of an even partition of `full` elements over the group.
Sizes partition_sizes(std::int64_t total, const ProcessGroup& group);

// Returns the size on every rank of a dimension of which this rank has `local` elements. If the forward knows the full
// length, there is no communication, and InputError is thrown unless `local` is the size of the even partition.
// Otherwise the ranks exchange their sizes.
Sizes shard_sizes(std::int64_t local, ProcessGroup& group);

}  // namespace nn
}  // namespace gantry
