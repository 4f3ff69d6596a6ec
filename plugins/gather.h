// Full tensors from every rank's parts: for export, comparisons and tests. Not for the training step.
#pragma once

#include <functional>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/policies/sharder.h"

namespace gantry {

// For every parameter of the model, in its order, the full tensor made of the parts that `local` gives for this rank's
// held parameters (by index; the parameter itself, its gradient, ...). Every rank gets all of them, under their global
// names. Collective over the world.
TensorDict gather_tensors(const StageModule& module, const PipelineStageManager& stages, const ProcessGroupMesh& mesh,
                          const std::function<torch::Tensor(std::size_t)>& local);

}  // namespace gantry
