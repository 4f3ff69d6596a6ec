#include "gantry/nn/ssd_heads.h"

#include "gantry/nn/depthwise_convolution.h"
#include "gantry/nn/mixers/ssd.h"
#include "gantry/nn/recurrence.h"
#include "gantry/nn/step_bias.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

SsdHeadsImpl::SsdHeadsImpl(const SsdHeadsOptions& options) : options_(options), held_{0, options.heads} {
  a_log = register_parameter("A_log", torch::arange(1, options.heads + 1, torch::kFloat32).log());
  d = register_parameter("D", torch::ones({options.heads}));
  dt_bias = register_parameter("dt_bias",
                               initial_step_bias(options.heads, options.first_initial_step, options.last_initial_step));
}

Placements SsdHeadsImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  if (!std::holds_alternative<Column>(style)) refuse_style("SsdHeads", style, "Column{}");
  const Shape shape = {options_.heads};
  const Placements placements = split_parameters({{"A_log", shape}, {"D", shape}, {"dt_bias", shape}}, style, axes);
  if (const ShardSpec heads = shard_of(placements, "A_log"); heads.sharded())
    held_ = heads.ranges(axes.rank(), options_.heads).front();
  shard_parameters(*this, placements, axes);
  return placements;
}

std::int64_t SsdHeadsImpl::local_groups() const {
  return (held_.end - 1) / heads_of_group() - held_.begin / heads_of_group() + 1;
}

torch::Tensor SsdHeadsImpl::in_groups(const torch::Tensor& features, const HeadRange& heads) const {
  return groups_of_heads(features.unflatten(-1, {-1, options_.state}), heads.first, heads.count, heads_of_group());
}

torch::Tensor SsdHeadsImpl::forward(const torch::Tensor& x, const torch::Tensor& b, const torch::Tensor& c,
                                    const torch::Tensor& dt, const HeadExchange& exchange, LayerState* state) {
  const torch::ScalarType wide = wide_type(x);
  const TokenContext& tokens = exchange.tokens();
  const auto own = [&](const torch::Tensor& parameter) { return exchange.own(parameter, {kOneOfEachHead}).to(wide); };
  const torch::Tensor steps = torch::softplus(dt.to(wide) + own(dt_bias));
  const torch::Tensor counted = without_padding(x, tokens);
  const SsdInputs inputs{.x = counted.view({x.size(0), x.size(1), exchange.heads().count, options_.head_size}),
                         .dt = steps.clamp(options_.least_step, options_.largest_step),
                         .a = -own(a_log).exp(),
                         .b = in_groups(b, exchange.heads()),
                         .c = in_groups(c, exchange.heads()),
                         .d = own(d)};
  return continue_recurrence(
             state, x.size(1), [&](const torch::Tensor& before) { return ssd_step(inputs, before); },
             [&](const torch::Tensor& before) { return ssd(inputs, before, tokens.documents); })
      .reshape(x.sizes());
}

}  // namespace gantry::nn
