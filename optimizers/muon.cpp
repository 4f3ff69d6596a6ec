#include "gantry/optimizers/muon.h"

#include <algorithm>
#include <cmath>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using torch::optim::OptimizerParamGroup;

// Coefficients of Jordan's quintic. It is steepest at 0, because small singular values are farthest from 1.
constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315;
constexpr double kSmallestNorm = 1e-7;
// With this factor the entries of an orthogonal update have the usual size of AdamW's (arXiv 2502.16982).
constexpr double kSizeOfAdamW = 0.2;

void require_matrices(const OptimizerParamGroup& group) {
  if (!dynamic_cast<const MuonOptions*>(&group.options())) return;
  for (const auto& parameter : group.params())
    if (parameter.dim() < 2)
      throw UsageError({"Muon",
                        "a group of MuonOptions has a parameter of " + std::to_string(parameter.dim()) + " dimensions",
                        "parameters with at least two dimensions", "put this parameter into a group of AdamWOptions"});
}

}  // namespace

torch::Tensor orthogonal_factor(const torch::Tensor& matrix, int iterations) {
  const bool is_tall = matrix.size(-2) > matrix.size(-1);
  // The matrix multiplications below have the size of the shorter side.
  torch::Tensor wide = is_tall ? matrix.mT() : matrix;
  const torch::Tensor norm = at::linalg_vector_norm(wide, 2, at::IntArrayRef({-2, -1}), /*keepdim=*/true);
  wide = wide / norm.clamp_min(kSmallestNorm);
  for (int i = 0; i < iterations; ++i) {
    const torch::Tensor square = wide.matmul(wide.mT());
    const torch::Tensor weights = square * kCubic + square.matmul(square) * kQuintic;
    wide = wide * kLinear + weights.matmul(wide);
  }
  return is_tall ? wide.mT() : wide;
}

Muon::Muon(const std::vector<OptimizerParamGroup>& groups, const MuonOptions& defaults)
    : MatrixOptimizer(groups, std::make_unique<MuonOptions>(defaults)) {
  require_options<MuonOptions>("Muon");
  for (const auto& group : param_groups_) require_matrices(group);
}

NamedTensors Muon::own_tensors(const torch::Tensor& parameter) {
  auto& state = own_state<MuonState>(parameter);
  if (!state.momentum_buffer().defined())
    state.momentum_buffer(torch::zeros_like(parameter, at::MemoryFormat::Preserve).detach());
  return {{"momentum_buffer", state.momentum_buffer()}};
}

void Muon::update(torch::Tensor& parameter, const torch::Tensor& gradient, const Options& given) {
  const auto& options = static_cast<const MuonOptions&>(given);
  torch::Tensor momentum = own_tensors(parameter).front().second;
  momentum.lerp_(gradient, 1 - options.momentum());
  const torch::Tensor direction = options.nesterov() ? gradient.lerp(momentum, options.momentum()) : momentum;
  const double size = kSizeOfAdamW * std::sqrt(std::max(parameter.size(-2), parameter.size(-1)));
  parameter.mul_(1 - options.lr() * options.weight_decay());
  parameter.add_(orthogonal_factor(direction, options.iterations()), -options.lr() * size);
}

}  // namespace gantry
