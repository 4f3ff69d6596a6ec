// Reductions of the gradients of elements that several ranks of a shard hold.
#pragma once

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/placement.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// `local` is this rank's part of a gradient, with the placement's local shape. Elements that several ranks of a shard
// hold get the sum of their values, shard by shard. Collective over the axes of those shards.
void sum_overlaps(torch::Tensor& local, const Placement& placement, const ProcessGroupMesh& mesh);

}  // namespace gantry
