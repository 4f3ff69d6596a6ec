#include "gantry/optimizers/adamw_8bit.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "gantry/optimizers/adamw_step.h"
#include "gantry/tensors/block_codes.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr int kDecades = 7;  // powers of ten that the table covers

// bitsandbytes' dynamic table: in each decade the midpoints of equal steps, with twice the number of steps of
// the decade below. A signed table also contains the negative values, and has half of the steps. 0 and 1 are
// added.
torch::Tensor dynamic_table(bool is_signed) {
  std::vector<double> values = {0, 1};
  for (int decade = 0; decade < kDecades; ++decade) {
    const std::int64_t steps = std::int64_t{1} << (decade + (is_signed ? 0 : 1));
    const double unit = std::pow(10.0, decade - (kDecades - 1));
    for (std::int64_t step = 0; step < steps; ++step) {
      const double share = (static_cast<double>(step) + 0.5) / static_cast<double>(steps);
      const double middle = unit * (0.1 + 0.9 * share);
      values.push_back(middle);
      if (is_signed) values.push_back(-middle);
    }
  }
  std::ranges::sort(values);
  return torch::tensor(values, torch::kFloat64);
}

const torch::Tensor& table_of_average(int average) {
  static const torch::Tensor tables[] = {dynamic_table(true), dynamic_table(false)};
  return tables[average];
}

torch::Tensor by_rows(const torch::Tensor& tensor) {
  return tensor.reshape({-1, tensor.dim() == 0 ? 1 : tensor.size(-1)});
}

}  // namespace

AdamW8bit::AdamW8bit(const std::vector<torch::optim::OptimizerParamGroup>& groups, const AdamW8bitOptions& defaults)
    : MatrixOptimizer(groups, std::make_unique<AdamW8bitOptions>(defaults)) {
  require_options<AdamW8bitOptions>("AdamW8bit");
}

torch::Tensor AdamW8bit::take_averages(const torch::Tensor& parameter) {
  auto& state = own_state<AdamW8bitState>(parameter);
  if (state.averages().defined()) return std::exchange(state.averages(), {});
  std::vector<std::int64_t> shape = parameter.sizes().vec();
  shape.insert(shape.begin(), 2);
  torch::Tensor averages = torch::zeros(shape, parameter.options().requires_grad(false));
  if (!state.codes().defined()) return averages;
  for (int i = 0; i < 2; ++i)
    averages[i].copy_(
        decode_blocks({state.codes()[i], state.scales()[i]}, kAverageBlock, table_of_average(i)).view_as(parameter));
  return averages;
}

NamedTensors AdamW8bit::own_tensors(const torch::Tensor& parameter) {
  const torch::NoGradGuard no_grad;
  auto& state = own_state<AdamW8bitState>(parameter);
  state.averages(take_averages(parameter));
  return {{"exp_avg", state.averages()[0]}, {"exp_avg_sq", state.averages()[1]}};
}

void AdamW8bit::set_own_steps(const torch::Tensor& parameter, std::int64_t steps) {
  own_state<AdamW8bitState>(parameter).step(steps);
}

std::optional<std::int64_t> AdamW8bit::own_steps(const torch::Tensor& parameter) {
  return own_state<AdamW8bitState>(parameter).step();
}

void AdamW8bit::update(torch::Tensor& parameter, const torch::Tensor& gradient, const Options& given) {
  const auto& options = static_cast<const AdamW8bitOptions&>(given);
  auto& state = own_state<AdamW8bitState>(parameter);
  const torch::Tensor averages = take_averages(parameter);
  state.step(state.step() + 1);
  torch::Tensor first = averages[0], second = averages[1];
  const auto adamw = torch::optim::AdamWOptions(options.lr())
                         .betas(options.betas())
                         .eps(options.eps())
                         .weight_decay(options.weight_decay());
  step_with_averages(parameter, gradient, first, second, adamw, state.step());
  const BlockCodes of_first = encode_blocks(by_rows(first), kAverageBlock, table_of_average(0)),
                   of_second = encode_blocks(by_rows(second), kAverageBlock, table_of_average(1));
  state.codes(torch::stack({of_first.codes, of_second.codes}));
  state.scales(torch::stack({of_first.scales, of_second.scales}));
}

}  // namespace gantry
