#include "gantry/optimizers/fused_adamw.h"

#include <torch/torch.h>

namespace gantry {
namespace {

using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;
using State = ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;

AdamWParamState& state_of(const torch::Tensor& parameter, State& state, bool keeps_largest) {
  auto& entry = state[parameter.unsafeGetTensorImpl()];
  if (!entry) {
    auto fresh = std::make_unique<AdamWParamState>();
    fresh->step(0);
    fresh->exp_avg(torch::zeros_like(parameter, at::MemoryFormat::Preserve));
    fresh->exp_avg_sq(torch::zeros_like(parameter, at::MemoryFormat::Preserve));
    entry = std::move(fresh);
  }
  auto& known = static_cast<AdamWParamState&>(*entry);
  if (keeps_largest && !known.max_exp_avg_sq().defined())
    known.max_exp_avg_sq(torch::zeros_like(parameter, at::MemoryFormat::Preserve));
  return known;
}

}  // namespace

torch::Tensor FusedAdamW::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure) {
    const torch::AutoGradMode enable(true);
    loss = closure();
  }
  const torch::NoGradGuard no_grad;
  for (auto& group : param_groups_) {
    const auto& options = static_cast<const AdamWOptions&>(group.options());
    std::vector<torch::Tensor> parameters, gradients, averages, squares, largest, steps;
    for (auto& parameter : group.params()) {
      if (!parameter.grad().defined() || parameter.numel() == 0) continue;
      auto& state = state_of(parameter, state_, options.amsgrad());
      state.step(state.step() + 1);
      parameters.push_back(parameter);
      gradients.push_back(parameter.grad());
      averages.push_back(state.exp_avg());
      squares.push_back(state.exp_avg_sq());
      if (options.amsgrad()) largest.push_back(state.max_exp_avg_sq());
      // Where the parameter is, as the fused kernel of a device wants it; filled there, without a copy that waits.
      steps.push_back(
          torch::full({}, static_cast<float>(state.step()), torch::dtype(torch::kFloat32).device(parameter.device())));
    }
    if (parameters.empty()) continue;
    const auto [beta1, beta2] = options.betas();
    at::_fused_adamw_(parameters, gradients, averages, squares, largest, steps, options.lr(), beta1, beta2,
                      options.weight_decay(), options.eps(), options.amsgrad(), /*maximize=*/false);
  }
  return loss;
}

}  // namespace gantry
