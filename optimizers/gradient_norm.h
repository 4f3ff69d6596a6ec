// The gradient's norm over the full model: every parameter's every element counted once, whatever the layout.
#pragma once

#include "gantry/optimizers/gradient_buffers.h"

namespace gantry {

// The p-norms (2, infinity or any p > 0) of the parts of reduced gradients that this rank counts, with what they are
// left to be multiplied by: float64 [parts], where the gradients are. `held_stages`: the stages of this rank.
torch::Tensor part_norms(const GradientBuffers& gradients, const ProcessGroupMesh& mesh,
                         const std::vector<int>& held_stages, double p = 2);

// The p-norm of all ranks' parts; the same on every rank. Collective over the world.
double gradient_norm(const std::vector<double>& part_norms, const ProcessGroupMesh& mesh, double p = 2);
// The same, reading the parts' norms back.
double gradient_norm(const GradientBuffers& gradients, const ProcessGroupMesh& mesh,
                     const std::vector<int>& held_stages, double p = 2);

// The first parameter of the lowest rank whose gradient is not finite, with that rank; "" where all are. Collective
// over the world.
std::string first_non_finite(const GradientBuffers& gradients, const ProcessGroupMesh& mesh);

// What gradients are multiplied by to have a norm of at most max_norm: max_norm / (norm + 1e-6) where that is below 1.
double clip_factor(double norm, double max_norm);

}  // namespace gantry
