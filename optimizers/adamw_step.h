// AdamW steps: of several parameters in one call of LibTorch's fused kernel, and of one parameter by single operators.
#pragma once

#include <memory>
#include <vector>

#include <torch/optim/adamw.h>

namespace gantry {

using OptimizerStates = ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;

// The parameter's state; created with zeros if it does not exist.
torch::optim::AdamWParamState& adamw_state(OptimizerStates& states, const torch::Tensor& parameter, bool keeps_largest);

// Steps the parameters that have a gradient and elements. The kernel multiplies gradients by `factor` while
// it reads them, and stores the result as the gradient. The factor is float32 in the kernel, so use a factor
// other than 1 only with float32 gradients.
void step_by_adamw(const std::vector<torch::Tensor>& parameters, OptimizerStates& states,
                   const torch::optim::AdamWOptions& options, double factor = 1);

// Steps all groups of a FusedAdamW.
void step_by_adamw(torch::optim::AdamW& optimizer, double factor = 1);

// Updates the two averages and then the parameter, all in place, for optimizers that store averages in another form.
// All tensors have one type. `steps`: number of steps of the parameter, with this one. `options`: without amsgrad.
void step_with_averages(torch::Tensor& parameter, const torch::Tensor& gradient, torch::Tensor& first,
                        torch::Tensor& second, const torch::optim::AdamWOptions& options, std::int64_t steps);

}  // namespace gantry
