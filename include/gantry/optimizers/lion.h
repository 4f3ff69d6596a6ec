// The Lion optimizer (Chen et al., Symbolic discovery of optimization algorithms, arXiv 2302.06675). It steps by the
// sign of an interpolation of gradient and momentum, and has half of AdamW's state.
#pragma once

#include <torch/optim/optimizer.h>

#include "gantry/optimizers/optimizer_tensors.h"

namespace gantry {

struct LionOptions : public torch::optim::OptimizerCloneableOptions<LionOptions> {
  explicit LionOptions(double learning_rate = 1e-4) : lr_(learning_rate) {}
  TORCH_ARG(double, lr) = 1e-4;
  using Betas = std::tuple<double, double>;
  TORCH_ARG(Betas, betas) = std::make_tuple(0.9, 0.99);
  TORCH_ARG(double, weight_decay) = 0;  // decoupled, as in AdamW

 public:
  double get_lr() const override { return lr(); }
  void set_lr(double learning_rate) override { lr(learning_rate); }
};

struct LionState : public torch::optim::OptimizerCloneableParamState<LionState> {
  TORCH_ARG(torch::Tensor, exp_avg);
};

class Lion : public torch::optim::Optimizer, public StatefulOptimizer {
 public:
  explicit Lion(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                const LionOptions& defaults = LionOptions());
  explicit Lion(std::vector<torch::Tensor> parameters, const LionOptions& defaults = LionOptions())
      : Lion({torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults) {}

  // Parameters without a gradient are skipped, as in LibTorch's optimizers.
  torch::Tensor step(LossClosure closure = nullptr) override;
  NamedTensors state_tensors(const torch::Tensor& parameter) override;
  void set_steps(const torch::Tensor&, std::int64_t) override {}
};

}  // namespace gantry
