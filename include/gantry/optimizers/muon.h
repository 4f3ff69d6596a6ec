// Muon (Jordan et al., kellerjordan.github.io/posts/muon; step sizes of Liu et al., Muon is scalable for LLM training,
// arXiv 2502.16982): steps a matrix by its momentum made orthogonal, with half of AdamW's state.
//
// A group whose options are MuonOptions is stepped so; its parameters have two dims or more, and the dims before the
// last two count matrices. A group whose options are torch::optim::AdamWOptions is stepped by AdamW: embeddings, heads,
// norms and biases. With step sizes as AdamW's, one learning rate serves both.
//
// The step needs whole matrices. Where ranks hold parts of one, one of them gets it whole (OptimizerUnit::kMatrix), so
// that every layout takes the step of one rank.
#pragma once

#include <torch/optim/adamw.h>

#include "gantry/optimizers/optimizer_tensors.h"

namespace gantry {

struct MuonOptions : public torch::optim::OptimizerCloneableOptions<MuonOptions> {
  explicit MuonOptions(double learning_rate = 1e-3) : lr_(learning_rate) {}
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(double, momentum) = 0.95;
  TORCH_ARG(bool, nesterov) = true;
  TORCH_ARG(double, weight_decay) = 0.1;  // decoupled, as AdamW's
  TORCH_ARG(int, iterations) = 5;         // of Newton and Schulz

 public:
  double get_lr() const override { return lr(); }
  void set_lr(double learning_rate) override { lr(learning_rate); }
};

struct MuonState : public torch::optim::OptimizerCloneableParamState<MuonState> {
  TORCH_ARG(torch::Tensor, momentum_buffer);
};

class Muon : public torch::optim::Optimizer, public StatefulOptimizer {
 public:
  // UsageError for options of another class, and where a group of MuonOptions has a parameter of fewer than two dims.
  // That is looked at here: what is stepped later may be what one rank holds.
  explicit Muon(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                const MuonOptions& defaults = MuonOptions());

  // Parameters without a gradient are skipped, as LibTorch's optimizers do.
  torch::Tensor step(LossClosure closure = nullptr) override;
  NamedTensors state_tensors(const torch::Tensor& parameter) override;
  void set_steps(const torch::Tensor& parameter, std::int64_t steps) override;
  std::optional<std::int64_t> steps_taken(const torch::Tensor& parameter) override;  // of what AdamW steps
  OptimizerUnit unit(const torch::optim::OptimizerParamGroup& group) const override;

 private:
  // Null for one that is stepped by Muon.
  const torch::optim::AdamWOptions* adamw_options(const torch::Tensor& parameter) const;
  torch::Tensor& momentum_of(const torch::Tensor& parameter);
};

// About the matrix that is nearest to `matrix` [..., rows, columns] among those whose singular values are all 1:
// `iterations` of the quintic polynomial of Newton and Schulz with Jordan's coefficients, which leave them between 0.7
// and 1.2. In the matrix's own type.
torch::Tensor orthogonal_factor(const torch::Tensor& matrix, int iterations = 5);

}  // namespace gantry
