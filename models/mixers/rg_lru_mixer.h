// The module of gated linear recurrences (RG-LRU).
#pragma once

#include "gantry/models/described/mixers/rg_lru.h"
#include "gantry/models/mixers/layer_mixer.h"
#include "gantry/nn/block_linear.h"
#include "gantry/nn/depthwise_convolution.h"
#include "gantry/nn/head_parameter.h"
#include "gantry/nn/linear.h"

namespace gantry::models {

class RgLruMixer final : public LayerMixer {
 public:
  RgLruMixer(const RgLru& kind, torch::nn::Module& layer, std::int64_t hidden);
  torch::Tensor forward(const torch::Tensor& input, const nn::TokenContext& tokens, int layer) override;

 private:
  const RgLruSizes sizes_;
  nn::Linear gate_{nullptr}, input_{nullptr}, output_{nullptr};
  nn::DepthwiseConvolution convolution_{nullptr};
  nn::BlockLinear input_gate_{nullptr}, recurrent_gate_{nullptr};
  nn::HeadParameter rate_{nullptr};
};

}  // namespace gantry::models
