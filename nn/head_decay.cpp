#include "gantry/nn/head_decay.h"

#include "gantry/nn/mixers/chunks.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

HeadDecayImpl::HeadDecayImpl(std::int64_t heads) : heads_(heads) {
  const torch::NoGradGuard no_grad;
  a_log_ = register_parameter("A_log", torch::empty({heads}).uniform_(0.01, 16).log_());
  dt_bias_ = register_parameter("dt_bias", torch::empty({heads}).fill_(1));
}

torch::Tensor HeadDecayImpl::forward(const torch::Tensor& input, const HeadExchange& exchange) {
  const torch::ScalarType type = wide_type(input);
  const torch::Tensor rate = exchange.own(a_log_, {kOneOfEachHead}), bias = exchange.own(dt_bias_, {kOneOfEachHead});
  return -torch::exp(rate.to(type)) * torch::softplus(input.to(type) + bias.to(type));
}

Placements HeadDecayImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  if (!std::holds_alternative<Column>(style)) refuse_style("a HeadDecay", style, "Column{}");
  const Placements placements = split_parameters({{"A_log", {heads_}}, {"dt_bias", {heads_}}}, style, axes);
  shard_parameters(*this, placements, axes);
  return placements;
}

}  // namespace gantry::nn
