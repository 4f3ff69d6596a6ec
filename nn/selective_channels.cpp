#include "gantry/nn/selective_channels.h"

#include "gantry/nn/depthwise_convolution.h"
#include "gantry/nn/mixers/selective_scan.h"
#include "gantry/nn/recurrence.h"
#include "gantry/nn/step_bias.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

SelectiveChannelsImpl::SelectiveChannelsImpl(const SelectiveChannelsOptions& options) : options_(options) {
  const torch::Tensor logarithms = torch::arange(1, options.state + 1, torch::kFloat32).log();
  a_log = register_parameter("A_log", logarithms.unsqueeze(0).repeat({options.channels, 1}));
  d = register_parameter("D", torch::ones({options.channels}));
  dt_bias = register_parameter(
      "dt_bias", initial_step_bias(options.channels, options.first_initial_step, options.last_initial_step));
}

Placements SelectiveChannelsImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  if (!std::holds_alternative<Column>(style)) refuse_style("SelectiveChannels", style, "Column{}");
  const Shape all = {options_.channels};
  const Placements placements =
      split_parameters({{"A_log", {options_.channels, options_.state}}, {"D", all}, {"dt_bias", all}}, style, axes);
  shard_parameters(*this, placements, axes);
  return placements;
}

torch::Tensor SelectiveChannelsImpl::forward(const SelectedTokens& selected, const HeadExchange& exchange,
                                             LayerState* state) {
  const torch::ScalarType wide = wide_type(selected.x);
  const TokenContext& tokens = exchange.tokens();
  const auto own = [&](const torch::Tensor& parameter) { return exchange.own(parameter, {kOneOfEachHead}).to(wide); };
  const SelectiveScanInputs inputs{.x = without_padding(selected.x, tokens),
                                   .dt = torch::softplus(selected.dt.to(wide) + own(dt_bias)),
                                   .a = -own(a_log).exp(),
                                   .b = selected.b,
                                   .c = selected.c,
                                   .d = own(d)};
  return continue_recurrence(
      state, selected.x.size(1), [&](const torch::Tensor& before) { return selective_scan_step(inputs, before); },
      [&](const torch::Tensor& before) { return selective_scan(inputs, before, tokens.documents); });
}

}  // namespace gantry::nn
