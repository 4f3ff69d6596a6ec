// The activation xIELU with trained slopes (Huang, Schlag: Deriving Activation Functions Using Integration, arXiv
// 2411.13010).
#pragma once

#include "gantry/nn/norms.h"

namespace gantry::nn {

// With p = softplus(alpha_p) and n = beta + softplus(alpha_n): p x^2 + beta x for x above 0, and otherwise
// n (exp(min(x, eps)) - 1 - x) + beta x. Parameters alpha_p and alpha_n [1], initially p = n = 0.8, and beta and eps
// [1], 0.5 and -1e-6, which are not trained. They are sharded like those of a norm: with OnHeads, the input is this
// rank's part of the features, and the gradients are partial sums.
class XieluImpl : public NormImpl {
 public:
  XieluImpl();
  torch::Tensor forward(const torch::Tensor& input);
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;
  torch::Tensor alpha_p, alpha_n, beta, eps;
};
TORCH_MODULE(Xielu);

}  // namespace gantry::nn
