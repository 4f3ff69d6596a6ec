// Finds replicas that have drifted apart: the same parameter on several ranks must be the same to the bit, and so must
// its gradient after the sync.
#pragma once

#include "gantry/comm/process_group_mesh.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/schedule/pipeline_stage_manager.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// Compares every held parameter and its gradient along each axis that does not shard it, where ranks of a shard share
// elements, and over the stages that share them. NumericalError (exit 8) naming the first one that differs, whether it
// is the parameter or its gradient, and the ranks that differ from the first. Gradients are synced. Collective over the
// world.
void audit_replicas(const GradientBuffers& gradients, const ProcessGroupMesh& mesh, const PipelineStageManager& stages);

// Compares this rank's batch with those of its peers along the axis, which must be equal. InputError naming the entry
// and the ranks. Collective over the axis.
void check_equal_inputs(const TensorDict& tensors, const ProcessGroupMesh& mesh, const std::string& axis);

}  // namespace gantry
