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
  const std::int64_t heads = heads_->local_heads(), inner = heads * sizes_.head_size,
                     group = heads_->local_groups() * sizes_.state;
  auto parts = input_(multiplied(input, sizes_.input_scale)).split_with_sizes({inner, inner, group, group, heads}, -1);
  for (std::size_t part = 0; part < parts.size(); ++part) parts[part] = multiplied(parts[part], sizes_.scales[part]);
  nn::LayerState* state = tokens.state(layer);
  const auto mixed = convolution_(torch::cat({parts[1], parts[2], parts[3]}, -1), tokens, state)
                         .split_with_sizes({inner, group, group}, -1);
  const torch::Tensor made = heads_(mixed[0], mixed[1], mixed[2], parts[4], tokens, state);
  const torch::Tensor gated = norm_ ? norm_(made, parts[0]) : made * torch::silu(parts[0]);
  return multiplied(output_(gated), sizes_.output_scale);
}

}  // namespace gantry::models
