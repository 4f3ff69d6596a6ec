// Losses that compare all samples of a step with each other (nn/gather_samples.h).
#pragma once

#include <torch/nn/module.h>

#include "gantry/comm/process_group_mesh.h"

namespace gantry {

// Makes the model's modules that gather samples do so over the replicas. Returns true if there is such a
// module. Throws ConfigError if there is one and the model has several stages.
bool share_samples(const torch::nn::Module& model, const ProcessGroupMesh& mesh);

// Throws ConfigError if a step of such a model has several microbatches, or several calls that add up gradients.
void refuse_parts_of_samples(int microbatches, bool adds);

}  // namespace gantry
