#include "gantry/models/mixers/gated_delta_mixer.h"

#include "gantry/models/register_at.h"
#include "gantry/nn/recurrence.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

GatedDeltaMixer::GatedDeltaMixer(const GatedDelta& kind, torch::nn::Module& layer, std::int64_t hidden)
    : kind_(kind.sizes) {
  const GatedDeltaSizes& sizes = kind_.sizes;
  const std::int64_t values = kind_.values();
  const auto add_input = [&](const std::string& path, std::int64_t width) {
    inputs_.push_back(linear_at(layer, path, hidden, width, false));
  };
  const auto add_convolution = [&](const std::string& path, std::int64_t channels) {
    convolutions_.push_back(register_at(
        layer, path,
        nn::DepthwiseConvolution(nn::DepthwiseOptions{.channels = channels, .kernel = sizes.kernel, .silu = true})));
  };
  if (kind_.is_grouped()) {
    add_input(GatedDelta::kGroupedInput, 2 * kind_.keys() + 2 * values);
    add_input(GatedDelta::kGroupedNumbers, 2 * sizes.value_heads);
  } else {
    if (!kind_.is_separate()) add_input(GatedDelta::kInput, kind_.channels());
    for (std::size_t part = 0; part < 3 && kind_.is_separate(); ++part)
      add_input(GatedDelta::projection(GatedDelta::kParts[part]), kind_.width_of(part));
    gate_ = linear_at(layer, kind_.gate(), hidden, values, false);
    write_ = linear_at(layer, kind_.write(), hidden, sizes.value_heads, false);
    decay_input_ = linear_at(layer, kind_.decay_input(), hidden, sizes.value_heads, false);
  }
  if (!kind_.is_separate()) add_convolution(GatedDelta::kConvolution, kind_.channels());
  for (std::size_t part = 0; part < 3 && kind_.is_separate(); ++part)
    add_convolution(GatedDelta::convolution(GatedDelta::kParts[part]), kind_.width_of(part));
  decay_ = register_at(layer, GatedDelta::kDecay, nn::HeadDecay(sizes.value_heads));
  norm_ = register_at(layer, kind_.norm(), nn::RmsNorm(sizes.value_size, sizes.eps));
  output_ = linear_at(layer, kind_.output(), values, hidden, false);
}

GatedDeltaMixer::Projected GatedDeltaMixer::projected_by_group(const torch::Tensor& input) {
  const GatedDeltaSizes& sizes = kind_.sizes;
  const std::int64_t served = kind_.served(), values = served * sizes.value_size;
  const auto both = nn::together(input, {inputs_[0], inputs_[1]});
  const auto groups = both[0]
                          .unflatten(-1, {-1, 2 * sizes.key_size + 2 * values})
                          .split_with_sizes({sizes.key_size, sizes.key_size, values, values}, -1);
  const auto numbers = both[1].unflatten(-1, {-1, 2, served}).unbind(-2);
  return {groups[0].flatten(-2),
          groups[1].flatten(-2),
          groups[2].flatten(-2),
          groups[3].flatten(-2).unflatten(-1, {-1, sizes.value_size}),
          numbers[0].flatten(-2),
          numbers[1].flatten(-2),
          nn::held_heads(inputs_[1], 2, sizes.value_heads)};
}

GatedDeltaMixer::Projected GatedDeltaMixer::projected(const torch::Tensor& input) {
  if (kind_.is_grouped()) return projected_by_group(input);
  const auto parts = nn::together(input, {inputs_[0], gate_, write_, decay_input_});
  std::vector<torch::Tensor> channels = {parts[0]};
  for (std::size_t part = 1; part < inputs_.size(); ++part) channels.push_back(inputs_[part](input));
  if (!kind_.is_separate()) channels = parts[0].split_with_sizes(widths(parts[0].size(-1), parts[2].size(-1)), -1);
  return {channels[0],
          channels[1],
          channels[2],
          parts[1].unflatten(-1, {-1, kind_.sizes.value_size}),
          parts[2],
          parts[3],
          nn::held_heads(write_, 1, kind_.sizes.value_heads)};
}

std::vector<std::int64_t> GatedDeltaMixer::widths(std::int64_t channels, std::int64_t value_heads) const {
  const std::int64_t values = value_heads * kind_.sizes.value_size, keys = (channels - values) / 2;
  return {keys, keys, values};
}

nn::GatedDeltaInputs GatedDeltaMixer::inputs(const torch::Tensor& channels, const torch::Tensor& write,
                                             const torch::Tensor& decay, const nn::HeadExchange& exchange) {
  const GatedDeltaSizes& sizes = kind_.sizes;
  const nn::HeadRange& values = exchange.heads();
  const auto parts = channels.split_with_sizes(widths(channels.size(-1), values.count), -1);
  const auto by_head = [](const torch::Tensor& part, std::int64_t size) { return part.unflatten(-1, {-1, size}); };
  const auto for_values = [&](const torch::Tensor& part) {
    return nn::groups_of_heads(by_head(part, sizes.key_size), values.first, values.count, kind_.served());
  };
  return {.query = for_values(parts[0]),
          .key = for_values(parts[1]),
          .value = by_head(parts[2], sizes.value_size),
          .decay = decay_(decay, exchange),
          .beta = sizes.negative ? 2 * torch::sigmoid(write) : torch::sigmoid(write)};
}

torch::Tensor GatedDeltaMixer::forward(const torch::Tensor& input, const nn::TokenContext& tokens, int layer) {
  nn::LayerState* state = tokens.state(layer);
  const Projected of = projected(input);
  const nn::HeadExchange exchange(tokens, of.values);
  const nn::HeadBlocks keys{kind_.sizes.key_size, kind_.served()}, values{kind_.sizes.value_size};
  const auto mine = exchange.to_heads({of.query, of.key, of.value, of.write, of.decay},
                                      {keys, keys, values, nn::kOneOfEachHead, nn::kOneOfEachHead});
  const torch::Tensor channels =
      nn::convolve_together(convolutions_, {mine[0], mine[1], mine[2]}, exchange, {keys, keys, values}, state);
  const nn::GatedDeltaInputs given = inputs(channels, mine[3], mine[4], exchange);
  const torch::Tensor made = nn::continue_recurrence(
      state, channels.size(1), [&](const torch::Tensor& before) { return nn::gated_delta_step(given, before); },
      [&](const torch::Tensor& before) { return nn::gated_delta(given, before, exchange.tokens().documents); });
  const torch::Tensor here = exchange.to_tokens(made.flatten(-2), values.size).unflatten(-1, {-1, values.size});
  return output_((norm_(here) * torch::silu(of.gate)).flatten(-2));
}

}  // namespace gantry::models
