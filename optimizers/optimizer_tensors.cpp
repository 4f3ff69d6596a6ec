#include "gantry/optimizers/optimizer_tensors.h"

#include <typeinfo>

#include <torch/optim/adagrad.h>
#include <torch/optim/rmsprop.h>

#include "gantry/core/error.h"
#include "gantry/optimizers/fused_adamw.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using torch::optim::Optimizer;

// What the parameter is stepped with: the options of its group. One that is in none is not stepped.
template <class Options>
const Options& options_of(Optimizer& optimizer, const torch::Tensor& parameter) {
  for (auto& group : optimizer.param_groups())
    for (const auto& held : group.params())
      if (held.is_same(parameter)) return static_cast<const Options&>(group.options());
  return static_cast<const Options&>(optimizer.defaults());
}

// Adam's and AdamW's states have the same parts.
template <class State>
State& moments_of(Optimizer& optimizer, const torch::Tensor& parameter) {
  auto& entry = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!entry) {
    auto fresh = std::make_unique<State>();
    fresh->step(0);
    fresh->exp_avg(torch::zeros_like(parameter).detach());
    fresh->exp_avg_sq(torch::zeros_like(parameter).detach());
    entry = std::move(fresh);
  }
  return static_cast<State&>(*entry);
}

template <class State>
NamedTensors moment_tensors(Optimizer& optimizer, const torch::Tensor& parameter, bool has_largest) {
  auto& state = moments_of<State>(optimizer, parameter);
  NamedTensors tensors = {{"exp_avg", state.exp_avg()}, {"exp_avg_sq", state.exp_avg_sq()}};
  if (has_largest) {
    if (!state.max_exp_avg_sq().defined()) state.max_exp_avg_sq(torch::zeros_like(parameter).detach());
    tensors.push_back({"max_exp_avg_sq", state.max_exp_avg_sq()});
  }
  return tensors;
}

NamedTensors sgd_tensors(torch::optim::SGD& optimizer, const torch::Tensor& parameter) {
  if (options_of<torch::optim::SGDOptions>(optimizer, parameter).momentum() == 0) return {};
  auto& entry = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!entry) {
    auto fresh = std::make_unique<torch::optim::SGDParamState>();
    // The first step sets the buffer to the gradient, which is what it makes of zeros too.
    fresh->momentum_buffer(torch::zeros_like(parameter).detach());
    entry = std::move(fresh);
  }
  return {{"momentum_buffer", static_cast<torch::optim::SGDParamState&>(*entry).momentum_buffer()}};
}

[[noreturn]] void refuse() {
  throw UsageError({"checkpoint", "the optimizer cannot be saved, because the state of its class is unknown",
                    "Adam, AdamW, SGD, Lion, Muon or a gantry::StatefulOptimizer",
                    "derive its class from gantry::StatefulOptimizer"});
}

}  // namespace

NamedTensors optimizer_tensors(Optimizer& optimizer, const torch::Tensor& parameter) {
  if (auto* own = dynamic_cast<StatefulOptimizer*>(&optimizer)) return own->state_tensors(parameter);
  if (dynamic_cast<torch::optim::AdamW*>(&optimizer))
    return moment_tensors<torch::optim::AdamWParamState>(
        optimizer, parameter, options_of<torch::optim::AdamWOptions>(optimizer, parameter).amsgrad());
  if (dynamic_cast<torch::optim::Adam*>(&optimizer))
    return moment_tensors<torch::optim::AdamParamState>(
        optimizer, parameter, options_of<torch::optim::AdamOptions>(optimizer, parameter).amsgrad());
  if (auto* sgd = dynamic_cast<torch::optim::SGD*>(&optimizer)) return sgd_tensors(*sgd, parameter);
  refuse();
}

void set_optimizer_steps(Optimizer& optimizer, const torch::Tensor& parameter, std::int64_t steps) {
  if (auto* own = dynamic_cast<StatefulOptimizer*>(&optimizer)) return own->set_steps(parameter, steps);
  if (dynamic_cast<torch::optim::AdamW*>(&optimizer))
    moments_of<torch::optim::AdamWParamState>(optimizer, parameter).step(steps);
  else if (dynamic_cast<torch::optim::Adam*>(&optimizer))
    moments_of<torch::optim::AdamParamState>(optimizer, parameter).step(steps);
}

std::optional<std::int64_t> optimizer_steps(Optimizer& optimizer, const torch::Tensor& parameter) {
  if (auto* own = dynamic_cast<StatefulOptimizer*>(&optimizer)) return own->steps_taken(parameter);
  if (dynamic_cast<torch::optim::AdamW*>(&optimizer))
    return moments_of<torch::optim::AdamWParamState>(optimizer, parameter).step();
  if (dynamic_cast<torch::optim::Adam*>(&optimizer))
    return moments_of<torch::optim::AdamParamState>(optimizer, parameter).step();
  return std::nullopt;
}

bool is_known_optimizer(const Optimizer& optimizer) {
  if (dynamic_cast<const StatefulOptimizer*>(&optimizer)) return true;
  const auto& type = typeid(optimizer);
  return type == typeid(FusedAdamW) || type == typeid(torch::optim::Adam) || type == typeid(torch::optim::AdamW) ||
         type == typeid(torch::optim::SGD) || type == typeid(torch::optim::RMSprop) ||
         type == typeid(torch::optim::Adagrad);
}

OptimizerUnit optimizer_unit(const Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group) {
  const auto* own = dynamic_cast<const StatefulOptimizer*>(&optimizer);
  return own ? own->unit(group) : OptimizerUnit::kElement;
}

}  // namespace gantry
