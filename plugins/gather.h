// Gathers full tensors from the parts of all ranks, for export, comparisons and tests. Not for the training
// step.
#pragma once

#include <functional>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/policies/sharder.h"

namespace gantry {

// Returns the full tensor of every parameter of the model, in the model's order, under their global names.
// `local` returns this rank's part by the index of the held parameter: the parameter itself, its gradient, or
// another tensor. Every rank gets all tensors. Collective over the world.
TensorDict gather_tensors(const StageModule& module, const PipelineStageManager& stages, const ProcessGroupMesh& mesh,
                          const std::function<torch::Tensor(std::size_t)>& local);

}  // namespace gantry
