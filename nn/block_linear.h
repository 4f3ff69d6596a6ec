// A block-diagonal projection: each head has a matrix of its own.
#pragma once

#include <torch/nn/module.h>

#include "gantry/nn/head_exchange.h"
#include "gantry/nn/shard_style.h"

namespace gantry::nn {

// forward: [samples, tokens, heads of the exchange * size] -> the same shape, x_h W_h + b_h for each head. Parameters
// weight [heads, size, size], as [in, out], and bias [heads, size], initially zeros. After shard(Column{}): the local
// heads, without communication.
class BlockLinearImpl : public torch::nn::Module, public Shardable {
 public:
  BlockLinearImpl(std::int64_t heads, std::int64_t size);
  torch::Tensor forward(const torch::Tensor& input, const HeadExchange& exchange) const;
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;

  torch::Tensor weight, bias;

 private:
  const std::int64_t heads_, size_;
};
TORCH_MODULE(BlockLinear);

}  // namespace gantry::nn
