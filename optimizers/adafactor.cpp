#include "gantry/optimizers/adafactor.h"

#include <cmath>

#include "gantry/core/slice.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr const char *kRowAverages = "exp_avg_sq_row", *kColumnAverages = "exp_avg_sq_col";

// Root mean square over the last dimensions that a unit has.
torch::Tensor root_mean_square(const torch::Tensor& values) {
  const at::DimVector dims = values.dim() < 2 ? at::DimVector{-1} : at::DimVector{-2, -1};
  return values.square().mean(dims, /*keepdim=*/true).sqrt();
}

Shape shape_without(const torch::Tensor& tensor, std::int64_t dim) {
  Shape shape = tensor.sizes().vec();
  shape.erase(shape.end() + dim);
  return shape;
}

}  // namespace

Adafactor::Adafactor(const std::vector<torch::optim::OptimizerParamGroup>& groups, const AdafactorOptions& defaults)
    : MatrixOptimizer(groups, std::make_unique<AdafactorOptions>(defaults)) {
  require_options<AdafactorOptions>("Adafactor");
}

std::optional<int> Adafactor::missing_dim(const std::string& name) const {
  if (name == kRowAverages) return -1;
  return name == kColumnAverages ? std::optional(-2) : std::nullopt;
}

NamedTensors Adafactor::own_tensors(const torch::Tensor& parameter) {
  auto& state = own_state<AdafactorState>(parameter);
  const auto zeros = [&](const Shape& shape) { return torch::zeros(shape, parameter.options().requires_grad(false)); };
  if (parameter.dim() < 2) {
    if (!state.exp_avg_sq().defined()) state.exp_avg_sq(zeros(parameter.sizes().vec()));
    return {{"exp_avg_sq", state.exp_avg_sq()}};
  }
  if (!state.exp_avg_sq_row().defined()) {
    state.exp_avg_sq_row(zeros(shape_without(parameter, -1)));
    state.exp_avg_sq_col(zeros(parameter.numel() == 0 ? Shape{0} : shape_without(parameter, -2)));
  }
  return {{kRowAverages, state.exp_avg_sq_row()}, {kColumnAverages, state.exp_avg_sq_col()}};
}

void Adafactor::set_own_steps(const torch::Tensor& parameter, std::int64_t steps) {
  own_state<AdafactorState>(parameter).step(steps);
}

std::optional<std::int64_t> Adafactor::own_steps(const torch::Tensor& parameter) {
  return own_state<AdafactorState>(parameter).step();
}

void Adafactor::update(torch::Tensor& parameter, const torch::Tensor& gradient, const Options& given) {
  const auto& options = static_cast<const AdafactorOptions&>(given);
  own_tensors(parameter);
  auto& state = own_state<AdafactorState>(parameter);
  state.step(state.step() + 1);
  const double weight = std::pow(static_cast<double>(state.step()), options.decay_rate());
  const torch::Tensor square = gradient.square() + options.eps();
  torch::Tensor change;
  if (parameter.dim() < 2) {
    change = state.exp_avg_sq().lerp_(square, weight).rsqrt() * gradient;
  } else {
    const torch::Tensor& rows = state.exp_avg_sq_row().lerp_(square.mean(-1), weight);
    const torch::Tensor& columns = state.exp_avg_sq_col().lerp_(square.mean(-2), weight);
    const torch::Tensor relative = (rows / rows.mean(-1, /*keepdim=*/true)).rsqrt();
    change = gradient * relative.unsqueeze(-1) * columns.rsqrt().unsqueeze(-2);
  }
  change = change / (root_mean_square(change) / options.clip_threshold()).clamp_min(1);
  if (options.weight_decay() != 0) parameter.mul_(1 - options.lr() * options.weight_decay());
  parameter.add_(change, -options.lr());
}

}  // namespace gantry
