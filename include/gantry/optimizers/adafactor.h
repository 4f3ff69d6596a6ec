// The Adafactor optimizer (Shazeer, Stern: Adafactor, arXiv 1804.04235), with a given learning rate and without first
// moment, as transformers' `optim="adafactor"`: scale_parameter and relative_step are false. Its state is one number
// for each row and each column of a matrix; vectors have one for each element.
//
// The step needs full matrices and vectors (OptimizerUnit::kMatrix), so its result does not depend on the layout. Each
// matrix of a parameter with more than two dimensions (stacks of experts, convolutions) is clipped by itself, while
// transformers clips the full parameter.
#pragma once

#include "gantry/optimizers/matrix_optimizer.h"

namespace gantry {

struct AdafactorOptions : public torch::optim::OptimizerCloneableOptions<AdafactorOptions> {
  explicit AdafactorOptions(double learning_rate = 1e-3) : lr_(learning_rate) {}
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(double, eps) = 1e-30;         // added to squared gradients
  TORCH_ARG(double, clip_threshold) = 1;  // largest root mean square of an update, before the learning rate
  TORCH_ARG(double, decay_rate) = -0.8;   // the average of step k has the decay 1 - k^decay_rate
  TORCH_ARG(double, weight_decay) = 0;    // decoupled, as in AdamW

 public:
  double get_lr() const override { return lr(); }
  void set_lr(double learning_rate) override { lr(learning_rate); }
};

struct AdafactorState : public torch::optim::OptimizerCloneableParamState<AdafactorState> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(torch::Tensor, exp_avg_sq_row);  // for a matrix: its shape without the last dimension
  TORCH_ARG(torch::Tensor, exp_avg_sq_col);  // for a matrix: its shape without the second to last one
  TORCH_ARG(torch::Tensor, exp_avg_sq);      // for a vector
};

class Adafactor : public MatrixOptimizer {
 public:
  explicit Adafactor(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                     const AdafactorOptions& defaults = AdafactorOptions());
  std::optional<int> missing_dim(const std::string& name) const override;

 private:
  void update(torch::Tensor& parameter, const torch::Tensor& gradient, const Options& options) override;
  NamedTensors own_tensors(const torch::Tensor& parameter) override;
  void set_own_steps(const torch::Tensor& parameter, std::int64_t steps) override;
  std::optional<std::int64_t> own_steps(const torch::Tensor& parameter) override;
  OptimizerUnit own_unit() const override { return OptimizerUnit::kMatrix; }
};

}  // namespace gantry
