#include "gantry/models/mixers/short_convolution_mixer.h"

#include "gantry/models/register_at.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

ShortConvolutionMixer::ShortConvolutionMixer(const ShortConvolution& kind, torch::nn::Module& layer,
                                             std::int64_t hidden) {
  const ShortConvolutionSizes& sizes = kind.sizes;
  input_ = linear_at(layer, ShortConvolution::kInput, hidden, 3 * sizes.channels, sizes.bias);
  convolution_ = register_at(layer, ShortConvolution::kConvolution,
                             nn::DepthwiseConvolution(nn::DepthwiseOptions{
                                 .channels = sizes.channels, .kernel = sizes.kernel, .bias = sizes.bias}));
  output_ = linear_at(layer, ShortConvolution::kOutput, sizes.channels, hidden, sizes.bias);
}

torch::Tensor ShortConvolutionMixer::forward(const torch::Tensor& input, const nn::TokenContext& tokens, int layer) {
  const auto parts = input_(input).chunk(3, -1);
  const std::int64_t channels = parts[0].size(-1);
  const nn::HeadExchange exchange(tokens, {0, channels, channels});
  const torch::Tensor gated = exchange.to_heads({parts[0] * parts[2]}, {nn::kOneOfEachHead}).front();
  const torch::Tensor made = convolution_->forward(gated, exchange, {nn::kOneOfEachHead}, tokens.state(layer));
  return output_(parts[1] * exchange.to_tokens(made, 1));
}

}  // namespace gantry::models
