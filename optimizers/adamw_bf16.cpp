#include "gantry/optimizers/adamw_bf16.h"

#include <algorithm>

#include "gantry/core/error.h"
#include "gantry/optimizers/adamw_step.h"
#include "gantry/optimizers/closure_loss.h"
#include "gantry/optimizers/group_options.h"
#include "gantry/optimizers/random_rounding.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

using torch::optim::AdamWOptions;

namespace {

// Elements that are updated at a time: bounds the memory of float32 averages and random bits.
constexpr std::int64_t kElementsAtATime = std::int64_t{1} << 20;

// Flat, contiguous parts of the same elements.
struct UpdatedPart {
  torch::Tensor parameter, gradient, first, second;
};

void update(const UpdatedPart& part, const AdamWOptions& options, std::int64_t step) {
  const auto type = part.parameter.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  const torch::Tensor gradient = part.gradient.to(type);
  const torch::Tensor hashes = element_hashes(gradient, part.parameter, static_cast<std::uint32_t>(step));
  torch::Tensor values = part.parameter.to(type), first = part.first.to(type), second = part.second.to(type);
  step_with_averages(values, gradient, first, second, options, step);
  torch::Tensor(part.first).copy_(randomly_rounded(first, hashes));
  torch::Tensor(part.second).copy_(randomly_rounded(second, hashes));
  if (!values.is_alias_of(part.parameter)) torch::Tensor(part.parameter).copy_(values);
}

}  // namespace

AdamWBf16::AdamWBf16(const std::vector<torch::optim::OptimizerParamGroup>& groups, const AdamWOptions& defaults)
    : Optimizer(groups, std::make_unique<AdamWOptions>(defaults)) {
  keep_group_options(param_groups_, groups);
  for (const auto& group : param_groups_)
    if (static_cast<const AdamWOptions&>(group.options()).amsgrad())
      throw UsageError({"AdamWBf16", "a group has amsgrad", "groups without amsgrad", "use gantry::FusedAdamW"});
}

AdamWBf16State& AdamWBf16::state_of(const torch::Tensor& parameter) {
  auto& entry = state_[parameter.unsafeGetTensorImpl()];
  if (!entry) {
    const auto zeros = [&] {
      return torch::zeros(parameter.sizes(), parameter.options().dtype(torch::kBFloat16).requires_grad(false));
    };
    auto fresh = std::make_unique<AdamWBf16State>();
    fresh->exp_avg(zeros());
    fresh->exp_avg_sq(zeros());
    entry = std::move(fresh);
  }
  return static_cast<AdamWBf16State&>(*entry);
}

NamedTensors AdamWBf16::state_tensors(const torch::Tensor& parameter) {
  AdamWBf16State& state = state_of(parameter);
  return {{"exp_avg", state.exp_avg()}, {"exp_avg_sq", state.exp_avg_sq()}};
}

void AdamWBf16::set_steps(const torch::Tensor& parameter, std::int64_t steps) { state_of(parameter).step(steps); }

std::optional<std::int64_t> AdamWBf16::steps_taken(const torch::Tensor& parameter) {
  return state_of(parameter).step();
}

torch::Tensor AdamWBf16::step(LossClosure closure) {
  const torch::Tensor loss = closure_loss(closure);
  const torch::NoGradGuard no_grad;
  for (auto& group : param_groups_)
    for (auto& parameter : group.params()) {
      if (!parameter.grad().defined() || parameter.numel() == 0) continue;
      AdamWBf16State& state = state_of(parameter);
      state.step(state.step() + 1);
      const torch::Tensor values = parameter.contiguous(), gradient = parameter.grad().contiguous();
      for (std::int64_t begin = 0; begin < values.numel(); begin += kElementsAtATime) {
        const std::int64_t count = std::min(kElementsAtATime, values.numel() - begin);
        const auto part_of = [&](const torch::Tensor& all) { return all.view({-1}).narrow(0, begin, count); };
        update({part_of(values), part_of(gradient), part_of(state.exp_avg()), part_of(state.exp_avg_sq())},
               static_cast<const AdamWOptions&>(group.options()), state.step());
      }
      if (!values.is_same(parameter)) parameter.copy_(values);
    }
  return loss;
}

}  // namespace gantry
