#include "gantry/optimizers/muon.h"

#include <algorithm>
#include <cmath>

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/optimizers/adamw_step.h"
#include "gantry/optimizers/closure_loss.h"
#include "gantry/optimizers/group_options.h"

namespace gantry {
namespace {

using torch::optim::AdamWOptions;
using torch::optim::OptimizerParamGroup;

// Of Jordan's quintic: steepest at 0, where small singular values have the longest way.
constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315;
constexpr double kSmallestNorm = 1e-7;
// An orthogonal update's entries are as large as AdamW's usual ones with this share (arXiv 2502.16982).
constexpr double kSizeOfAdamW = 0.2;

const MuonOptions* muon_options(const OptimizerParamGroup& group) {
  return dynamic_cast<const MuonOptions*>(&group.options());
}

void check_group(const OptimizerParamGroup& group) {
  if (dynamic_cast<const AdamWOptions*>(&group.options())) return;
  if (!muon_options(group))
    throw UsageError({"Muon", "the options of a group have another class", "MuonOptions or torch::optim::AdamWOptions",
                      "use one of these classes for each group"});
  for (const auto& parameter : group.params())
    if (parameter.dim() < 2)
      throw UsageError({"Muon",
                        "a group of MuonOptions has a parameter of " + std::to_string(parameter.dim()) + " dimensions",
                        "parameters with at least two dimensions", "put this parameter into a group of AdamWOptions"});
}

}  // namespace

torch::Tensor orthogonal_factor(const torch::Tensor& matrix, int iterations) {
  const bool is_tall = matrix.size(-2) > matrix.size(-1);
  torch::Tensor wide = is_tall ? matrix.mT() : matrix;  // the products below are of the shorter side
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
    : Optimizer(groups, std::make_unique<MuonOptions>(defaults)) {
  keep_group_options(param_groups_, groups);
  for (const auto& group : param_groups_) check_group(group);
}

OptimizerUnit Muon::unit(const OptimizerParamGroup& group) const {
  return muon_options(group) ? OptimizerUnit::kMatrix : OptimizerUnit::kElement;
}

// One that is in no group any more is not stepped: its state is as the defaults say.
const AdamWOptions* Muon::adamw_options(const torch::Tensor& parameter) const {
  for (const auto& group : param_groups_)
    for (const auto& held : group.params())
      if (held.is_same(parameter)) return dynamic_cast<const AdamWOptions*>(&group.options());
  return nullptr;
}

torch::Tensor& Muon::momentum_of(const torch::Tensor& parameter) {
  auto& entry = state_[parameter.unsafeGetTensorImpl()];
  if (!entry) {
    auto fresh = std::make_unique<MuonState>();
    fresh->momentum_buffer(torch::zeros_like(parameter, at::MemoryFormat::Preserve).detach());
    entry = std::move(fresh);
  }
  return static_cast<MuonState&>(*entry).momentum_buffer();
}

NamedTensors Muon::state_tensors(const torch::Tensor& parameter) {
  const auto* options = adamw_options(parameter);
  if (!options) return {{"momentum_buffer", momentum_of(parameter)}};
  auto& state = adamw_state(state_, parameter, options->amsgrad());
  NamedTensors tensors = {{"exp_avg", state.exp_avg()}, {"exp_avg_sq", state.exp_avg_sq()}};
  if (options->amsgrad()) tensors.push_back({"max_exp_avg_sq", state.max_exp_avg_sq()});
  return tensors;
}

void Muon::set_steps(const torch::Tensor& parameter, std::int64_t steps) {
  if (const auto* options = adamw_options(parameter)) adamw_state(state_, parameter, options->amsgrad()).step(steps);
}

std::optional<std::int64_t> Muon::steps_taken(const torch::Tensor& parameter) {
  const auto* options = adamw_options(parameter);
  if (!options) return std::nullopt;
  return adamw_state(state_, parameter, options->amsgrad()).step();
}

torch::Tensor Muon::step(LossClosure closure) {
  const torch::Tensor loss = closure_loss(closure);
  const torch::NoGradGuard no_grad;
  for (auto& group : param_groups_) {
    const auto* options = muon_options(group);
    if (!options) {
      step_by_adamw(group.params(), state_, static_cast<const AdamWOptions&>(group.options()));
      continue;
    }
    for (auto& parameter : group.params()) {
      const torch::Tensor gradient = parameter.grad();
      if (!gradient.defined() || parameter.numel() == 0) continue;
      torch::Tensor& momentum = momentum_of(parameter);
      momentum.lerp_(gradient, 1 - options->momentum());
      const torch::Tensor direction = options->nesterov() ? gradient.lerp(momentum, options->momentum()) : momentum;
      const double size = kSizeOfAdamW * std::sqrt(std::max(parameter.size(-2), parameter.size(-1)));
      parameter.mul_(1 - options->lr() * options->weight_decay());
      parameter.add_(orthogonal_factor(direction, options->iterations()), -options->lr() * size);
    }
  }
  return loss;
}

}  // namespace gantry
