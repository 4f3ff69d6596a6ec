// The Muon optimizer (Jordan et al., kellerjordan.github.io/posts/muon; step sizes of Liu et al., Muon is scalable for
// LLM training, arXiv 2502.16982). It updates a matrix by its orthogonalised momentum, and has half of AdamW's state.
//
// Muon updates the parameters of groups with MuonOptions. They have at least two dimensions; those before the last two
// count matrices. AdamW updates the groups with torch::optim::AdamWOptions: embeddings, heads, norms and biases. The
// step sizes match AdamW's, so one learning rate is suitable for both.
//
// The step needs full matrices. If a matrix is sharded, one rank gets the full matrix (OptimizerUnit::kMatrix), so the
// result does not depend on the layout.
#pragma once

#include "gantry/optimizers/matrix_optimizer.h"

namespace gantry {

struct MuonOptions : public torch::optim::OptimizerCloneableOptions<MuonOptions> {
  explicit MuonOptions(double learning_rate = 1e-3) : lr_(learning_rate) {}
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(double, momentum) = 0.95;
  TORCH_ARG(bool, nesterov) = true;
  TORCH_ARG(double, weight_decay) = 0.1;  // decoupled, as in AdamW
  TORCH_ARG(int, iterations) = 5;         // Newton-Schulz iterations

 public:
  double get_lr() const override { return lr(); }
  void set_lr(double learning_rate) override { lr(learning_rate); }
};

struct MuonState : public torch::optim::OptimizerCloneableParamState<MuonState> {
  TORCH_ARG(torch::Tensor, momentum_buffer);
};

class Muon : public MatrixOptimizer {
 public:
  // Throws UsageError for options of another class, and if a group with MuonOptions has a parameter with fewer than two
  // dimensions. Later the optimizer may receive sharded parameters, so this is checked only here.
  explicit Muon(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                const MuonOptions& defaults = MuonOptions());

 private:
  void update(torch::Tensor& parameter, const torch::Tensor& gradient, const Options& options) override;
  NamedTensors own_tensors(const torch::Tensor& parameter) override;
  OptimizerUnit own_unit() const override { return OptimizerUnit::kMatrix; }
};

// Returns approximately the matrix with singular values 1 that is nearest to `matrix` [..., rows, columns]:
// `iterations` Newton-Schulz iterations with Jordan's quintic polynomial, whose results have singular values between
// 0.7 and 1.2. Computes in the type of `matrix`.
torch::Tensor orthogonal_factor(const torch::Tensor& matrix, int iterations = 5);

}  // namespace gantry
