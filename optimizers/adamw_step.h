// AdamW's step of several parameters in one call of LibTorch's fused kernel.
#pragma once

#include <memory>
#include <vector>

#include <torch/optim/adamw.h>

namespace gantry {

using OptimizerStates = ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;

// The parameter's state, made (zero) where there is none yet.
torch::optim::AdamWParamState& adamw_state(OptimizerStates& states, const torch::Tensor& parameter, bool keeps_largest);

// Steps those that have a gradient and elements. The kernel multiplies gradients by `factor` as it reads them, and
// leaves them so. It takes the factor in float32: another one than 1 is for float32 gradients.
void step_by_adamw(const std::vector<torch::Tensor>& parameters, OptimizerStates& states,
                   const torch::optim::AdamWOptions& options, double factor = 1);

// A step of all groups of a FusedAdamW.
void step_by_adamw(torch::optim::AdamW& optimizer, double factor = 1);

}  // namespace gantry
