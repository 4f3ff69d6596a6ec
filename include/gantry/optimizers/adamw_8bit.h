// AdamW whose two averages are in 8 bits (Dettmers et al., 8-bit optimizers via block-wise quantization, arXiv
// 2110.02861): a quarter of AdamW's state. Blocks are kAverageBlock neighbours within a row, and values are entries of
// bitsandbytes' dynamic tables. A step decodes the averages of one parameter, and encodes them again.
//
// The step needs full rows (OptimizerUnit::kRow), so its result does not depend on the layout. Checkpoints have the
// averages of AdamW, decoded: a run continues with the same codes, and either optimizer reads the other's state.
#pragma once

#include "gantry/core/row_encoding.h"
#include "gantry/optimizers/matrix_optimizer.h"

namespace gantry {

// bitsandbytes keeps the averages of smaller parameters in float32.
inline constexpr std::int64_t kSmallestAdamW8bit = 4096;

struct AdamW8bitOptions : public torch::optim::OptimizerCloneableOptions<AdamW8bitOptions> {
  explicit AdamW8bitOptions(double learning_rate = 1e-3) : lr_(learning_rate) {}
  TORCH_ARG(double, lr) = 1e-3;
  using Betas = std::tuple<double, double>;
  TORCH_ARG(Betas, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 1e-2;

 public:
  double get_lr() const override { return lr(); }
  void set_lr(double learning_rate) override { lr(learning_rate); }
};

struct AdamW8bitState : public torch::optim::OptimizerCloneableParamState<AdamW8bitState> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(torch::Tensor, codes);     // uint8 [2, rows, columns]: of the first and of the second average
  TORCH_ARG(torch::Tensor, scales);    // [2, rows, blocks]
  TORCH_ARG(torch::Tensor, averages);  // [2, ...]: decoded for a checkpoint, until the next step
};

// AdamW updates the groups with torch::optim::AdamWOptions.
class AdamW8bit : public MatrixOptimizer {
 public:
  explicit AdamW8bit(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                     const AdamW8bitOptions& defaults = AdamW8bitOptions());

 private:
  void update(torch::Tensor& parameter, const torch::Tensor& gradient, const Options& options) override;
  NamedTensors own_tensors(const torch::Tensor& parameter) override;
  void set_own_steps(const torch::Tensor& parameter, std::int64_t steps) override;
  std::optional<std::int64_t> own_steps(const torch::Tensor& parameter) override;
  OptimizerUnit own_unit() const override { return OptimizerUnit::kRow; }
  // Takes the averages [2, ...] out of the state.
  torch::Tensor take_averages(const torch::Tensor& parameter);
};

}  // namespace gantry
