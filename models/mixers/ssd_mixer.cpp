#include "gantry/models/mixers/ssd_mixer.h"

#include "gantry/models/optional_parts.h"
#include "gantry/models/register_at.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

SsdMixer::SsdMixer(const Ssd& kind, torch::nn::Module& layer, std::int64_t hidden) : sizes_(kind.sizes) {
  const std::int64_t rows = sizes_.inner() + sizes_.convolved() + sizes_.heads;
  input_ = linear_at(layer, Ssd::kInput, hidden, rows, sizes_.input_bias);
  convolution_ = register_at(
      layer, Ssd::kConvolution,
      nn::DepthwiseConvolution(nn::DepthwiseOptions{
          .channels = sizes_.convolved(), .kernel = sizes_.kernel, .bias = sizes_.convolution_bias, .silu = true}));
  heads_ = register_at(layer, Ssd::kRecurrence,
                       nn::SsdHeads(nn::SsdHeadsOptions{.heads = sizes_.heads,
                                                        .head_size = sizes_.head_size,
                                                        .groups = sizes_.groups,
                                                        .state = sizes_.state,
                                                        .least_step = sizes_.least_step,
                                                        .largest_step = sizes_.largest_step,
                                                        .first_initial_step = sizes_.first_initial_step,
                                                        .last_initial_step = sizes_.last_initial_step}));
  if (sizes_.normed)
    norm_ = register_at(layer, Ssd::kNorm,
                        nn::GatedNorm(nn::GatedNormOptions{.heads = sizes_.heads,
                                                           .head_size = sizes_.head_size,
                                                           .groups = sizes_.groups,
                                                           .eps = sizes_.eps,
                                                           .before_gate = sizes_.norm_before_gate}));
  output_ = linear_at(layer, Ssd::kOutput, sizes_.inner(), hidden, sizes_.output_bias);
}

torch::Tensor SsdMixer::forward(const torch::Tensor& input, const nn::TokenContext& tokens, int layer) {
  const nn::HeadExchange exchange(tokens, heads_->held());
  const std::int64_t heads = heads_->held().count, inner = heads * sizes_.head_size,
                     group = heads_->local_groups() * sizes_.state;
  auto parts = input_(multiplied(input, sizes_.input_scale)).split_with_sizes({inner, inner, group, group, heads}, -1);
  for (std::size_t part = 0; part < parts.size(); ++part) parts[part] = multiplied(parts[part], sizes_.scales[part]);
  nn::LayerState* state = tokens.state(layer);
  const nn::HeadBlocks of_heads{sizes_.head_size}, of_groups{sizes_.state, heads_->heads_of_group()};
  const auto given =
      exchange.to_heads({parts[1], parts[2], parts[3], parts[4]}, {of_heads, of_groups, of_groups, nn::kOneOfEachHead});
  const auto mixed =
      convolution_
          ->forward(torch::cat({given[0], given[1], given[2]}, -1), exchange, {of_heads, of_groups, of_groups}, state)
          .split_with_sizes({given[0].size(-1), given[1].size(-1), given[2].size(-1)}, -1);
  const torch::Tensor made =
      exchange.to_tokens(heads_(mixed[0], mixed[1], mixed[2], given[3], exchange, state), sizes_.head_size);
  const torch::Tensor gated = norm_ ? norm_(made, parts[0]) : made * torch::silu(parts[0]);
  return multiplied(output_(gated), sizes_.output_scale);
}

}  // namespace gantry::models
