// The module of gated short convolutions.
#pragma once

#include "gantry/models/described/mixers/short_convolution.h"
#include "gantry/models/mixers/layer_mixer.h"
#include "gantry/nn/depthwise_convolution.h"
#include "gantry/nn/linear.h"

namespace gantry::models {

class ShortConvolutionMixer final : public LayerMixer {
 public:
  ShortConvolutionMixer(const ShortConvolution& kind, torch::nn::Module& layer, std::int64_t hidden);
  torch::Tensor forward(const torch::Tensor& input, const nn::TokenContext& tokens, int layer) override;

 private:
  nn::Linear input_{nullptr}, output_{nullptr};
  nn::DepthwiseConvolution convolution_{nullptr};
};

}  // namespace gantry::models
