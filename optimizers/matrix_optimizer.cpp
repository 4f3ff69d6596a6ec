#include "gantry/optimizers/matrix_optimizer.h"

#include "gantry/core/error.h"
#include "gantry/optimizers/adamw_step.h"
#include "gantry/optimizers/closure_loss.h"
#include "gantry/optimizers/group_options.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

using torch::optim::AdamWOptions;
using torch::optim::OptimizerParamGroup;

MatrixOptimizer::MatrixOptimizer(const std::vector<OptimizerParamGroup>& groups, std::unique_ptr<Options> defaults)
    : Optimizer(groups, std::move(defaults)) {
  keep_group_options(param_groups_, groups);
}

void MatrixOptimizer::refuse_options(const std::string& name) {
  throw UsageError({name, "the options of a group have another class", name + "Options or torch::optim::AdamWOptions",
                    "use one of these classes for each group"});
}

OptimizerUnit MatrixOptimizer::unit(const OptimizerParamGroup& group) const {
  return dynamic_cast<const AdamWOptions*>(&group.options()) ? OptimizerUnit::kElement : own_unit();
}

const AdamWOptions* MatrixOptimizer::adamw_options(const torch::Tensor& parameter) const {
  for (const auto& group : param_groups_)
    for (const auto& held : group.params())
      if (held.is_same(parameter)) return dynamic_cast<const AdamWOptions*>(&group.options());
  return nullptr;
}

NamedTensors MatrixOptimizer::state_tensors(const torch::Tensor& parameter) {
  const auto* options = adamw_options(parameter);
  if (!options) return own_tensors(parameter);
  auto& state = adamw_state(state_, parameter, options->amsgrad());
  NamedTensors tensors = {{"exp_avg", state.exp_avg()}, {"exp_avg_sq", state.exp_avg_sq()}};
  if (options->amsgrad()) tensors.push_back({"max_exp_avg_sq", state.max_exp_avg_sq()});
  return tensors;
}

void MatrixOptimizer::set_steps(const torch::Tensor& parameter, std::int64_t steps) {
  if (const auto* options = adamw_options(parameter))
    adamw_state(state_, parameter, options->amsgrad()).step(steps);
  else
    set_own_steps(parameter, steps);
}

std::optional<std::int64_t> MatrixOptimizer::steps_taken(const torch::Tensor& parameter) {
  const auto* options = adamw_options(parameter);
  return options ? adamw_state(state_, parameter, options->amsgrad()).step() : own_steps(parameter);
}

torch::Tensor MatrixOptimizer::step(LossClosure closure) {
  const torch::Tensor loss = closure_loss(closure);
  const torch::NoGradGuard no_grad;
  for (auto& group : param_groups_) {
    if (const auto* options = dynamic_cast<const AdamWOptions*>(&group.options())) {
      step_by_adamw(group.params(), state_, *options);
      continue;
    }
    for (auto& parameter : group.params()) {
      const torch::Tensor gradient = parameter.grad();
      if (gradient.defined() && parameter.numel() > 0) update(parameter, gradient, group.options());
    }
  }
  return loss;
}

}  // namespace gantry
