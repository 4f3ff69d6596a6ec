// Decays of recurrent states, by a number of each head.
#pragma once

#include <torch/nn/module.h>

#include "gantry/nn/head_exchange.h"
#include "gantry/nn/shard_style.h"

namespace gantry::nn {

// forward: [..., heads of the exchange] -> -exp(A_log) softplus(input + dt_bias), at most 0, float32 or wider: the
// logarithm of a decay. Parameters A_log [heads], initially ln U(0.01, 16), and dt_bias [heads], initially ones. After
// shard(Column): the local heads.
class HeadDecayImpl : public torch::nn::Module, public Shardable {
 public:
  explicit HeadDecayImpl(std::int64_t heads);

  torch::Tensor forward(const torch::Tensor& input, const HeadExchange& exchange);
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;

 private:
  std::int64_t heads_;
  torch::Tensor a_log_, dt_bias_;
};
TORCH_MODULE(HeadDecay);

}  // namespace gantry::nn
