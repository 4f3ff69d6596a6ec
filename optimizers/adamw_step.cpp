#include "gantry/optimizers/adamw_step.h"

#include <torch/torch.h>

namespace gantry {

using torch::optim::AdamWParamState;

AdamWParamState& adamw_state(OptimizerStates& states, const torch::Tensor& parameter, bool keeps_largest) {
  const auto zeros = [&] { return torch::zeros_like(parameter, at::MemoryFormat::Preserve).detach(); };
  auto& entry = states[parameter.unsafeGetTensorImpl()];
  if (!entry) {
    auto fresh = std::make_unique<AdamWParamState>();
    fresh->step(0);
    fresh->exp_avg(zeros());
    fresh->exp_avg_sq(zeros());
    entry = std::move(fresh);
  }
  auto& known = static_cast<AdamWParamState&>(*entry);
  if (keeps_largest && !known.max_exp_avg_sq().defined()) known.max_exp_avg_sq(zeros());
  return known;
}

void step_by_adamw(const std::vector<torch::Tensor>& parameters, OptimizerStates& states,
                   const torch::optim::AdamWOptions& options) {
  std::vector<torch::Tensor> stepped, gradients, averages, squares, largest, steps;
  for (const auto& parameter : parameters) {
    if (!parameter.grad().defined() || parameter.numel() == 0) continue;
    auto& state = adamw_state(states, parameter, options.amsgrad());
    state.step(state.step() + 1);
    stepped.push_back(parameter);
    gradients.push_back(parameter.grad());
    averages.push_back(state.exp_avg());
    squares.push_back(state.exp_avg_sq());
    if (options.amsgrad()) largest.push_back(state.max_exp_avg_sq());
    // Where the parameter is, as the fused kernel of a device wants it; filled there, without a copy that waits.
    steps.push_back(
        torch::full({}, static_cast<float>(state.step()), torch::dtype(torch::kFloat32).device(parameter.device())));
  }
  if (stepped.empty()) return;
  const auto [beta1, beta2] = options.betas();
  at::_fused_adamw_(stepped, gradients, averages, squares, largest, steps, options.lr(), beta1, beta2,
                    options.weight_decay(), options.eps(), options.amsgrad(), /*maximize=*/false);
}

}  // namespace gantry
