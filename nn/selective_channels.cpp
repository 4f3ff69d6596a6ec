#include "gantry/nn/selective_channels.h"

#include "gantry/nn/depthwise_convolution.h"
#include "gantry/nn/mixers/selective_scan.h"
#include "gantry/nn/step_bias.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

constexpr const char* kScanState = "scan";  // in LayerState: [samples, channels, state]

}  // namespace

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

torch::Tensor SelectiveChannelsImpl::forward(const SelectedTokens& selected, const TokenContext& tokens,
                                             LayerState* state) {
  const torch::ScalarType wide = at::promote_types(selected.x.scalar_type(), torch::kFloat32);
  const SelectiveScanInputs inputs{.x = without_padding(selected.x, tokens),
                                   .dt = torch::softplus(selected.dt.to(wide) + dt_bias.to(wide)),
                                   .a = -a_log.to(wide).exp(),
                                   .b = selected.b,
                                   .c = selected.c,
                                   .d = d.to(wide)};
  const torch::Tensor earlier = state ? state->get(kScanState) : torch::Tensor();
  const RecurrenceResult made = earlier.defined() && selected.x.size(1) == 1
                                    ? selective_scan_step(inputs, earlier)
                                    : selective_scan(inputs, earlier, tokens.documents);
  if (state) state->set(kScanState, made.state);
  return made.out;
}

}  // namespace gantry::nn
