#include "gantry/nn/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "gantry/tensors/kernels/rotate.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

kernels::PairOrder order_of(bool paired) {
  return paired ? kernels::PairOrder::kAdjacent : kernels::PairOrder::kHalves;
}

// The gradient of a rotation is the inverse rotation, so the input is not kept.
struct RotationFunction : torch::autograd::Function<RotationFunction> {
  static Variable forward(AutogradContext* context, const Variable& heads, const torch::Tensor& cosine,
                          const torch::Tensor& sine, bool paired) {
    context->save_for_backward({cosine, sine});
    context->saved_data["paired"] = paired;
    return kernels::rotate(heads, cosine, sine, order_of(paired), kernels::Turn::kForward);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const kernels::PairOrder order = order_of(context->saved_data["paired"].toBool());
    return {kernels::rotate(gradients[0], saved[0], saved[1], order, kernels::Turn::kBack), {}, {}, {}};
  }
};

torch::Tensor plain_frequencies(std::int64_t rotated, double theta) {
  const torch::Tensor exponents = torch::arange(0, rotated, 2, torch::kInt64).to(torch::kFloat32) / rotated;
  return 1.0 / torch::pow(theta, exponents);
}

torch::Tensor llama3_frequencies(const RotaryOptions& options) {
  const torch::Tensor plain = plain_frequencies(options.rotated, options.theta);
  const auto original = static_cast<double>(options.original_positions);
  const torch::Tensor wavelength = 2 * std::numbers::pi / plain;
  const torch::Tensor smooth = (original / wavelength - options.low_frequency_factor) /
                               (options.high_frequency_factor - options.low_frequency_factor);
  const torch::Tensor between = (1 - smooth) * plain / options.factor + smooth * plain;
  const torch::Tensor long_waves = wavelength > original / options.low_frequency_factor;
  const torch::Tensor short_waves = wavelength < original / options.high_frequency_factor;
  return torch::where(long_waves, plain / options.factor, torch::where(short_waves, plain, between));
}

// The index of the pair of features that makes `times` full turns over the original positions.
double pair_rotation(double times, const RotaryOptions& options) {
  const auto original = static_cast<double>(options.original_positions);
  return static_cast<double>(options.rotated) * std::log(original / (times * 2 * std::numbers::pi)) /
         (2 * std::log(options.theta));
}

torch::Tensor yarn_frequencies(const RotaryOptions& options) {
  const torch::Tensor plain = plain_frequencies(options.rotated, options.theta);
  double low = pair_rotation(options.beta_fast, options), high = pair_rotation(options.beta_slow, options);
  if (options.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(options.rotated - 1));
  if (low == high) high += 0.001;
  const torch::Tensor ramp =
      ((torch::arange((options.rotated + 1) / 2, torch::kFloat32) - low) / (high - low)).clamp(0, 1);
  const torch::Tensor stays = 1 - ramp;
  return plain / options.factor * (1 - stays) + plain * stays;
}

// For texts longer than the model was trained on, the base grows with the length.
torch::Tensor dynamic_frequencies(const RotaryOptions& options, std::int64_t length) {
  const auto longest = static_cast<double>(options.original_positions);
  const auto rotated = static_cast<double>(options.rotated);
  const double stretch = options.factor * static_cast<double>(std::max(length, options.original_positions)) / longest -
                         (options.factor - 1);
  return plain_frequencies(options.rotated, options.theta * std::pow(stretch, rotated / (rotated - 2)));
}

double yarn_attention_factor(const RotaryOptions& options) {
  const auto scale = [&](double mscale) {
    return options.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(options.factor) + 1.0;
  };
  if (options.mscale != 0 && options.mscale_all_dim != 0) return scale(options.mscale) / scale(options.mscale_all_dim);
  return scale(1);
}

double attention_factor(const RotaryOptions& options) {
  if (options.type != "yarn" && options.type != "longrope") return 1;
  if (options.attention_factor) return *options.attention_factor;
  if (options.type == "yarn") return yarn_attention_factor(options);
  if (options.factor <= 1) return 1;
  return std::sqrt(1 + std::log(options.factor) / std::log(static_cast<double>(options.original_positions)));
}

// The row of positions that each pair of features reads.
std::vector<std::int64_t> rows_of_pairs(const RotaryOptions& options) {
  const auto& sections = options.sections;
  std::vector<std::int64_t> rows((options.rotated + 1) / 2, 0);
  for (std::int64_t pair = 0; pair < static_cast<std::int64_t>(rows.size()); ++pair) {
    if (options.rows == PositionRows::kInterleaved)
      rows[pair] = pair < 3 * sections[pair % 3] ? pair % 3 : 0;
    else if (pair >= sections[0])
      rows[pair] = pair < sections[0] + sections[1] ? 1 : 2;
  }
  return rows;
}

RotaryOptions full(RotaryOptions options, std::int64_t head_size) {
  if (options.rotated == 0) options.rotated = head_size;
  return options;
}

}  // namespace

Rotary::Rotary(std::int64_t head_size, RotaryOptions options)
    : options_(full(std::move(options), head_size)), attention_factor_(attention_factor(options_)) {}

std::int64_t Rotary::kind_of(std::int64_t length) const {
  if (options_.type == "dynamic") return std::max(length, options_.original_positions);
  if (options_.type == "longrope") return length > options_.original_positions ? 1 : 0;
  return 0;
}

torch::Tensor Rotary::frequencies(std::int64_t length) const {
  if (options_.type == "llama3") return llama3_frequencies(options_);
  if (options_.type == "yarn") return yarn_frequencies(options_);
  if (options_.type == "dynamic") return dynamic_frequencies(options_, length);
  const torch::Tensor plain = plain_frequencies(options_.rotated, options_.theta);
  if (options_.type == "linear") return plain / options_.factor;
  if (options_.type == "default") return plain;
  const auto& factors = length > options_.original_positions ? options_.long_factors : options_.short_factors;
  return plain / torch::tensor(factors, torch::kFloat32);
}

// `angles` are float64, because the float32 functions of the CPU and of CUDA differ in the last bit.
torch::Tensor Rotary::cosine_of(const torch::Tensor& angles, torch::ScalarType type) const {
  return (angles.cos() * attention_factor_).to(type);
}

torch::Tensor Rotary::sine_of(const torch::Tensor& angles, torch::ScalarType type) const {
  return (angles.sin() * attention_factor_).to(type);
}

void Rotary::prepare(const torch::Tensor& like, std::int64_t length) {
  const std::int64_t tokens = like.size(2), kind = kind_of(length);
  // Shorter texts use the first rows of the table. So an evaluation of short texts does not replace the table
  // of the training.
  if (cosine_.defined() && cosine_.size(0) >= tokens && table_kind_ == kind &&
      cosine_.scalar_type() == like.scalar_type() && cosine_.device() == like.device())
    return;
  const torch::NoGradGuard no_grad;
  const torch::Tensor angles = torch::outer(torch::arange(tokens, torch::kFloat32), frequencies(length))
                                   .to(like.options().dtype(torch::kFloat64));
  cosine_ = cosine_of(angles, like.scalar_type());
  sine_ = sine_of(angles, like.scalar_type());
  table_kind_ = kind;
}

torch::Tensor Rotary::positions_of_pairs(const torch::Tensor& positions) {
  if (positions.dim() == 2) return positions.unsqueeze(-1);
  if (!rows_of_pairs_.defined() || rows_of_pairs_.device() != positions.device())
    rows_of_pairs_ = torch::tensor(rows_of_pairs(options_), torch::kInt64).to(positions.device());
  return positions.index_select(-1, rows_of_pairs_);
}

torch::Tensor Rotary::turned_to(const torch::Tensor& heads, const torch::Tensor& positions, std::int64_t length) {
  const std::int64_t kind = kind_of(length);
  if (!frequencies_.defined() || frequencies_kind_ != kind || frequencies_.device() != heads.device()) {
    frequencies_ = frequencies(length).to(heads.device());
    frequencies_kind_ = kind;
  }
  const torch::Tensor angles =
      (positions_of_pairs(positions).to(torch::kFloat32) * frequencies_).unsqueeze(1).to(torch::kFloat64);
  return RotationFunction::apply(heads, cosine_of(angles, heads.scalar_type()), sine_of(angles, heads.scalar_type()),
                                 options_.paired);
}

torch::Tensor Rotary::operator()(const torch::Tensor& heads, const torch::Tensor& positions, std::int64_t length) {
  if (length == 0) length = heads.size(2);
  if (positions.defined()) return turned_to(heads, positions, length);
  prepare(heads, length);
  const std::int64_t tokens = heads.size(2);
  return RotationFunction::apply(heads, cosine_.narrow(0, 0, tokens), sine_.narrow(0, 0, tokens), options_.paired);
}

}  // namespace gantry::nn
