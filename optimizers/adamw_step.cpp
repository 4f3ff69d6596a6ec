#include "gantry/optimizers/adamw_step.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "gantry/tensors/libtorch.h"

namespace gantry {

using torch::optim::AdamWParamState;

namespace {

// The fused CPU kernel updates full vectors, and the remaining elements of a tensor one by one, with other
// rounding. The part of a tensor that a rank holds ends at another place in each layout. Therefore the
// remainders are updated as vectors too, each in a padded line of its own.
class RemainderElements {
 public:
  // Each of `lists` has one tensor per parameter, or is empty. Afterwards it contains the tensors without
  // their remainders, followed by the padded remainders.
  void take(const std::vector<std::vector<torch::Tensor>*>& lists, std::vector<torch::Tensor>& steps) {
    const std::size_t count = steps.size();
    for (auto* list : lists)
      for (std::size_t i = 0; i < std::min(count, list->size()); ++i) {
        const std::int64_t left = (*list)[i].numel() % kLine, full = (*list)[i].numel() - left;
        if (left == 0) continue;
        torch::Tensor flat = (*list)[i].detach().view({-1});
        (*list)[i] = flat.narrow(0, 0, full);
        torch::Tensor line = torch::zeros({kLine}, flat.options());
        ends_.emplace_back(flat.narrow(0, full, left), line.narrow(0, 0, left));
        ends_.back().second.copy_(ends_.back().first);
        list->push_back(line);
        if (list == lists.front()) steps.push_back(steps[i]);
      }
  }
  void give_back() {
    for (auto& [end, line] : ends_) end.copy_(line);
  }

 private:
  static constexpr std::int64_t kLine = 32;  // elements; a multiple of the length of every vector type

  std::vector<std::pair<torch::Tensor, torch::Tensor>> ends_;
};

// Step numbers in the form that the fused kernel reads: float32, on the parameter's device. They are created
// there, because a copy from the host would wait. Parameters with the same number share a tensor: one kernel
// per parameter would keep a device idle for milliseconds.
class StepNumbers {
 public:
  const torch::Tensor& of(std::int64_t step, const torch::Device& device) {
    if (!tensor_.defined() || step_ != step || tensor_.device() != device) {
      tensor_ = torch::full({}, static_cast<float>(step), torch::dtype(torch::kFloat32).device(device));
      step_ = step;
    }
    return tensor_;
  }

 private:
  torch::Tensor tensor_;
  std::int64_t step_ = 0;
};

}  // namespace

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
                   const torch::optim::AdamWOptions& options, double factor) {
  std::vector<torch::Tensor> stepped, gradients, averages, squares, largest, steps;
  StepNumbers numbers;
  for (const auto& parameter : parameters) {
    if (!parameter.grad().defined() || parameter.numel() == 0) continue;
    auto& state = adamw_state(states, parameter, options.amsgrad());
    state.step(state.step() + 1);
    stepped.push_back(parameter);
    gradients.push_back(parameter.grad());
    averages.push_back(state.exp_avg());
    squares.push_back(state.exp_avg_sq());
    if (options.amsgrad()) largest.push_back(state.max_exp_avg_sq());
    steps.push_back(numbers.of(state.step(), parameter.device()));
  }
  if (stepped.empty()) return;
  RemainderElements tails;
  if (!stepped.front().is_cuda()) tails.take({&stepped, &gradients, &averages, &squares, &largest}, steps);
  std::optional<torch::Tensor> divisor;
  if (factor != 1) divisor = torch::full({}, 1 / factor, torch::dtype(torch::kFloat32).device(steps.front().device()));
  const auto [beta1, beta2] = options.betas();
  at::_fused_adamw_(stepped, gradients, averages, squares, largest, steps, options.lr(), beta1, beta2,
                    options.weight_decay(), options.eps(), options.amsgrad(), /*maximize=*/false, divisor);
  tails.give_back();
}

void step_by_adamw(torch::optim::AdamW& optimizer, double factor) {
  const torch::NoGradGuard no_grad;
  for (auto& group : optimizer.param_groups())
    step_by_adamw(group.params(), optimizer.state(), static_cast<const torch::optim::AdamWOptions&>(group.options()),
                  factor);
}

void step_with_averages(torch::Tensor& parameter, const torch::Tensor& gradient, torch::Tensor& first,
                        torch::Tensor& second, const torch::optim::AdamWOptions& options, std::int64_t steps) {
  const auto [beta1, beta2] = options.betas();
  const auto count = static_cast<double>(steps);
  first.lerp_(gradient, 1 - beta1);
  second.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
  const torch::Tensor size = (second / (1 - std::pow(beta2, count))).sqrt_().add_(options.eps());
  parameter.mul_(1 - options.lr() * options.weight_decay());
  parameter.addcdiv_(first, size, -options.lr() / (1 - std::pow(beta1, count)));
}

}  // namespace gantry
