#include "gantry/nn/block_linear.h"

#include <cmath>

#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

BlockLinearImpl::BlockLinearImpl(std::int64_t heads, std::int64_t size) : heads_(heads), size_(size) {
  weight = register_parameter("weight", torch::empty({heads, size, size}));
  torch::nn::init::normal_(weight, 0, 1 / std::sqrt(static_cast<double>(size)));
  bias = register_parameter("bias", torch::zeros({heads, size}));
}

torch::Tensor BlockLinearImpl::forward(const torch::Tensor& input, const HeadExchange& exchange) const {
  const torch::Tensor by_head = input.reshape({-1, exchange.heads().count, size_}).transpose(0, 1);
  return torch::baddbmm(exchange.own(bias, {kOneOfEachHead}).unsqueeze(1), by_head,
                        exchange.own(weight, {kOneOfEachHead}))
      .transpose(0, 1)
      .reshape(input.sizes());
}

Placements BlockLinearImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  if (!std::holds_alternative<Column>(style)) refuse_style("a BlockLinear", style, "Column{}");
  const Placements placements =
      split_parameters({{"weight", {heads_, size_, size_}}, {"bias", {heads_, size_}}}, style, axes);
  shard_parameters(*this, placements, axes);
  return placements;
}

}  // namespace gantry::nn
