#include "gantry/models/mixers/selective_scan_mixer.h"

#include "gantry/models/register_at.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

using Norms = SelectiveScanSizes::Norms;

SelectiveScanMixer::SelectiveScanMixer(const SelectiveScan& kind, torch::nn::Module& layer, std::int64_t hidden)
    : sizes_(kind.sizes) {
  const std::int64_t channels = sizes_.channels;
  input_ = linear_at(layer, SelectiveScan::kInput, hidden, 2 * channels, sizes_.bias);
  convolution_ =
      register_at(layer, SelectiveScan::kConvolution,
                  nn::DepthwiseConvolution(nn::DepthwiseOptions{
                      .channels = channels, .kernel = sizes_.kernel, .bias = sizes_.convolution_bias, .silu = true}));
  selection_ = linear_at(layer, SelectiveScan::kSelection, channels, sizes_.rank + 2 * sizes_.state, false);
  if (sizes_.norms == Norms::kWeighted) {
    step_norm_ = register_at(layer, SelectiveScan::kStepNorm, nn::RmsNorm(sizes_.rank, sizes_.eps));
    input_norm_ = register_at(layer, SelectiveScan::kInputNorm, nn::RmsNorm(sizes_.state, sizes_.eps));
    output_norm_ = register_at(layer, SelectiveScan::kOutputNorm, nn::RmsNorm(sizes_.state, sizes_.eps));
  }
  enter_ = register_at(layer, SelectiveScan::kEnter, nn::EnterHeads());
  steps_ = linear_at(layer, SelectiveScan::kSteps, sizes_.rank, channels, false);
  channels_ =
      register_at(layer, SelectiveScan::kRecurrence,
                  nn::SelectiveChannels(nn::SelectiveChannelsOptions{.channels = channels,
                                                                     .state = sizes_.state,
                                                                     .first_initial_step = sizes_.first_initial_step,
                                                                     .last_initial_step = sizes_.last_initial_step}));
  output_ = linear_at(layer, SelectiveScan::kOutput, channels, hidden, sizes_.bias);
}

torch::Tensor SelectiveScanMixer::normed(nn::RmsNorm& norm, const torch::Tensor& input) const {
  if (norm) return norm(input);
  return sizes_.norms == Norms::kNone ? input : at::rms_norm(input, {input.size(-1)}, {}, sizes_.eps);
}

// With tensor ranks, dt_proj and `enter_` both begin the part of the computation that is by channels. With context
// ranks, x_proj reads all channels of this rank's tokens, so x is exchanged there and back.
torch::Tensor SelectiveScanMixer::forward(const torch::Tensor& input, const nn::TokenContext& tokens, int layer) {
  nn::LayerState* state = tokens.state(layer);
  const auto parts = input_(input).chunk(2, -1);
  const std::int64_t channels = parts[0].size(-1);
  const nn::HeadExchange exchange(tokens, {0, channels, channels});
  const torch::Tensor x = convolution_->forward(exchange.to_heads({parts[0]}, {nn::kOneOfEachHead}).front(), exchange,
                                                {nn::kOneOfEachHead}, state);
  const auto selected =
      selection_(exchange.to_tokens(x, 1)).split_with_sizes({sizes_.rank, sizes_.state, sizes_.state}, -1);
  const torch::Tensor dt = steps_(normed(step_norm_, selected[0]));
  const torch::Tensor both =
      enter_(torch::cat({normed(input_norm_, selected[1]), normed(output_norm_, selected[2])}, -1));
  const auto given = exchange.to_heads({dt, both}, {nn::kOneOfEachHead, {2 * sizes_.state, channels}});
  const auto of_state = given[1].chunk(2, -1);
  const torch::Tensor made = channels_(nn::SelectedTokens{x, given[0], of_state[0], of_state[1]}, exchange, state);
  return output_(exchange.to_tokens(made, 1) * torch::silu(parts[1]));
}

}  // namespace gantry::models
