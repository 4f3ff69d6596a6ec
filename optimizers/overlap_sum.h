// Sums of gradients of elements that ranks of a cut share.
#pragma once

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/placement.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// `local` is what this rank has of a gradient, of the placement's local shape; elements that several ranks of a cut
// have get the sum of theirs, cut by cut. Collective over the axes of those cuts.
void sum_overlaps(torch::Tensor& local, const Placement& placement, const ProcessGroupMesh& mesh);

}  // namespace gantry
