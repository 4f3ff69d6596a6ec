// How an activation lies over a group, and how it is brought from one layout to another.
//
// The gradient of a Replicate tensor is whole on every rank, that of a Shard is the same part, and that of a Partial is
// whole: so every change of layout has exactly one backward.
#pragma once

#include <string>

#include "gantry/comm/process_group.h"
#include "gantry/core/layout.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// Any layout to any other, with its gradient. A Shard is partitioned as evenly as possible, the first ranks taking the
// remainder; one that comes in may be cut otherwise, also into nothing. Collective over the group.
torch::Tensor redistribute(const torch::Tensor& tensor, ProcessGroup& group, const Layout& from, const Layout& to);

namespace nn {

// How `whole` elements of a sharded dim are partitioned over the group.
Sizes partition_sizes(std::int64_t whole, const ProcessGroup& group);

// Every rank's extent of a dim of which this rank has `local`. Where the forward knows the whole length, nothing
// is sent, and another part than that of an even partition is an InputError; elsewhere the ranks exchange their
// numbers.
Sizes shard_sizes(std::int64_t local, ProcessGroup& group);

}  // namespace nn
}  // namespace gantry
