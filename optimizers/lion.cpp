#include "gantry/optimizers/lion.h"

#include "gantry/optimizers/closure_loss.h"
#include "gantry/optimizers/group_options.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

Lion::Lion(const std::vector<torch::optim::OptimizerParamGroup>& groups, const LionOptions& defaults)
    : Optimizer(groups, std::make_unique<LionOptions>(defaults)) {
  keep_group_options(param_groups_, groups);
}

NamedTensors Lion::state_tensors(const torch::Tensor& parameter) {
  auto& entry = state_[parameter.unsafeGetTensorImpl()];
  if (!entry) {
    auto fresh = std::make_unique<LionState>();
    fresh->exp_avg(torch::zeros_like(parameter, at::MemoryFormat::Preserve).detach());
    entry = std::move(fresh);
  }
  return {{"exp_avg", static_cast<LionState&>(*entry).exp_avg()}};
}

torch::Tensor Lion::step(LossClosure closure) {
  const torch::Tensor loss = closure_loss(closure);
  const torch::NoGradGuard no_grad;
  for (auto& group : param_groups_) {
    const auto& options = static_cast<const LionOptions&>(group.options());
    const auto [beta1, beta2] = options.betas();
    for (auto& parameter : group.params()) {
      const torch::Tensor gradient = parameter.grad();
      if (!gradient.defined() || parameter.numel() == 0) continue;
      torch::Tensor average = state_tensors(parameter).front().second;
      if (options.weight_decay() != 0) parameter.mul_(1 - options.lr() * options.weight_decay());
      parameter.add_(at::lerp(gradient, average, beta1).sign_(), -options.lr());
      average.lerp_(gradient, 1 - beta2);
    }
  }
  return loss;
}

}  // namespace gantry
