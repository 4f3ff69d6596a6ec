// The norm of the gradient over the full model. Every element of every parameter counts once, in any layout.
#pragma once

#include "gantry/optimizers/gradient_buffers.h"

namespace gantry {

// Returns the p-norms (2, infinity or any p > 0) of this rank's parts of the reduced gradients, multiplied by
// GradientBuffers::left(). The result is a float64 tensor [parts] on the device of the gradients.
// `held_stages`: the stages of this rank.
torch::Tensor part_norms(const GradientBuffers& gradients, const ProcessGroupMesh& mesh,
                         const std::vector<int>& held_stages, double p = 2);

// The p-norm over the parts of all ranks; the same on every rank. Collective over the world.
double gradient_norm(const std::vector<double>& part_norms, const ProcessGroupMesh& mesh, double p = 2);
// The same, but reads the norms of the parts from the device.
double gradient_norm(const GradientBuffers& gradients, const ProcessGroupMesh& mesh,
                     const std::vector<int>& held_stages, double p = 2);

// The name of the first parameter with a gradient that is not finite, on the lowest such rank, and the rank;
// "" if all gradients are finite. Collective over the world.
std::string first_non_finite(const GradientBuffers& gradients, const ProcessGroupMesh& mesh);

// The factor that limits the norm of the gradients to max_norm: max_norm / (norm + 1e-6), at most 1.
double clip_factor(double norm, double max_norm);

}  // namespace gantry
