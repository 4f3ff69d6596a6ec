// Finds replicas that have drifted apart: a parameter must be bitwise identical on all ranks that hold it,
// and so must its gradient after the sync.
#pragma once

#include "gantry/comm/process_group_mesh.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/schedule/pipeline_stage_manager.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// Compares every held parameter and its gradient: along each axis that does not shard it, between ranks of a
// shard that share elements, and over the stages that share it. Throws NumericalError (exit code 8) for the
// first difference. The error names the parameter or gradient, and the ranks that differ from the first one.
// Gradients must be synced. Collective over the world.
void audit_replicas(const GradientBuffers& gradients, const ProcessGroupMesh& mesh, const PipelineStageManager& stages);

// Compares this rank's batch with those of its peers along the axis, which must be equal. Throws InputError,
// naming the entry and the ranks. Collective over the axis.
void check_equal_inputs(const TensorDict& tensors, const ProcessGroupMesh& mesh, const std::string& axis);

}  // namespace gantry
