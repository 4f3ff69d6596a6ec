#include "gantry/nn/xielu.h"

#include <cmath>

#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

constexpr double kInitialBeta = 0.5, kInitialSlope = 0.8;

// The number whose softplus is `value`.
torch::Tensor of_softplus(double value) { return torch::full({1}, std::log(std::expm1(value))); }

}  // namespace

XieluImpl::XieluImpl() {
  alpha_p = register_parameter("alpha_p", of_softplus(kInitialSlope));
  alpha_n = register_parameter("alpha_n", of_softplus(kInitialSlope - kInitialBeta));
  beta = register_parameter("beta", torch::full({1}, kInitialBeta), /*requires_grad=*/false);
  eps = register_parameter("eps", torch::full({1}, -1e-6), /*requires_grad=*/false);
}

torch::Tensor XieluImpl::forward(const torch::Tensor& input) {
  const torch::ScalarType type = input.scalar_type();
  const torch::Tensor linear = beta.to(type), positive = torch::softplus(used(alpha_p).to(type)),
                      negative = torch::softplus(used(alpha_n).to(type)) + linear;
  const torch::Tensor above = positive * input * input,
                      below = negative * (torch::minimum(input, eps.to(type)).expm1() - input);
  return torch::where(input > 0, above, below) + linear * input;
}

Placements XieluImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  Placements placements = NormImpl::shard(style, axes);
  for (const char* constant : {"beta", "eps"}) placements.erase(constant);
  return placements;
}

}  // namespace gantry::nn
