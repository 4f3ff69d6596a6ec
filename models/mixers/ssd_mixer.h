// The module of Mamba-2 mixers.
#pragma once

#include "gantry/models/described/mixers/ssd.h"
#include "gantry/models/mixers/layer_mixer.h"
#include "gantry/nn/depthwise_convolution.h"
#include "gantry/nn/gated_norm.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/ssd_heads.h"

namespace gantry::models {

class SsdMixer final : public LayerMixer {
 public:
  SsdMixer(const Ssd& kind, torch::nn::Module& layer, std::int64_t hidden);
  torch::Tensor forward(const torch::Tensor& input, const nn::TokenContext& tokens, int layer) override;

 private:
  const SsdSizes sizes_;
  nn::Linear input_{nullptr}, output_{nullptr};
  nn::DepthwiseConvolution convolution_{nullptr};
  nn::SsdHeads heads_{nullptr};
  nn::GatedNorm norm_{nullptr};  // null: none
};

}  // namespace gantry::models
