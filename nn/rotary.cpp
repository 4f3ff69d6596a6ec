#include "gantry/nn/rotary.h"

#include <numbers>

#include <torch/torch.h>

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

torch::Tensor turned(const torch::Tensor& heads, const torch::Tensor& cosine, const torch::Tensor& sine) {
  const std::int64_t half = heads.size(-1) / 2;
  const torch::Tensor first = heads.narrow(-1, 0, half), second = heads.narrow(-1, half, half);
  torch::Tensor out = torch::empty(heads.sizes(), heads.options().requires_grad(false));
  out.narrow(-1, 0, half).copy_(first * cosine).addcmul_(second, sine, -1);
  out.narrow(-1, half, half).copy_(second * cosine).addcmul_(first, sine);
  return out;
}

// The gradient of a rotation is the rotation back, so nothing of the input is kept.
struct Turn : torch::autograd::Function<Turn> {
  static Variable forward(AutogradContext* context, const Variable& heads, const torch::Tensor& cosine,
                          const torch::Tensor& sine) {
    context->save_for_backward({cosine, sine});
    return turned(heads, cosine, sine);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    return {turned(gradients[0], saved[0], -saved[1]), {}, {}};
  }
};

// In float32, as Hugging Face's models compute them: far positions would show the difference.
torch::Tensor frequencies(std::int64_t head_size, const RotaryOptions& options) {
  const torch::Tensor exponents = torch::arange(0, head_size, 2, torch::kInt64).to(torch::kFloat32) / head_size;
  const torch::Tensor plain = 1.0 / torch::pow(options.theta, exponents);
  if (options.type == "default") return plain;
  const torch::Tensor stretched = plain / options.factor;
  if (options.type == "linear") return stretched;
  const auto original = static_cast<double>(options.original_positions);
  const torch::Tensor wavelength = 2 * std::numbers::pi / plain;
  const torch::Tensor smooth = (original / wavelength - options.low_frequency_factor) /
                               (options.high_frequency_factor - options.low_frequency_factor);
  const torch::Tensor between = (1 - smooth) * plain / options.factor + smooth * plain;
  const torch::Tensor long_waves = wavelength > original / options.low_frequency_factor;
  const torch::Tensor short_waves = wavelength < original / options.high_frequency_factor;
  return torch::where(long_waves, stretched, torch::where(short_waves, plain, between));
}

}  // namespace

void Rotary::prepare(const torch::Tensor& like) {
  const std::int64_t tokens = like.size(2);
  if (cosine_.defined() && cosine_.size(0) == tokens && cosine_.scalar_type() == like.scalar_type() &&
      cosine_.device() == like.device())
    return;
  const torch::NoGradGuard no_grad;
  const torch::Tensor angles =
      torch::outer(torch::arange(tokens, torch::kFloat32), frequencies(head_size_, options_)).to(like.device());
  cosine_ = angles.cos().to(like.scalar_type());
  sine_ = angles.sin().to(like.scalar_type());
}

torch::Tensor Rotary::turned_to(const torch::Tensor& heads, const torch::Tensor& positions) {
  if (!frequencies_.defined() || frequencies_.device() != heads.device())
    frequencies_ = frequencies(head_size_, options_).to(heads.device());
  const torch::Tensor angles = (positions.to(torch::kFloat32).unsqueeze(-1) * frequencies_).unsqueeze(1);
  return Turn::apply(heads, angles.cos().to(heads.scalar_type()), angles.sin().to(heads.scalar_type()));
}

torch::Tensor Rotary::operator()(const torch::Tensor& heads, const torch::Tensor& positions) {
  if (positions.defined()) return turned_to(heads, positions);
  prepare(heads);
  return Turn::apply(heads, cosine_, sine_);
}

}  // namespace gantry::nn
