// The module of Kimi delta attention.
#pragma once

#include "gantry/models/described/mixers/kimi_delta.h"
#include "gantry/models/mixers/layer_mixer.h"
#include "gantry/nn/depthwise_convolution.h"
#include "gantry/nn/head_parameter.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/norms.h"

namespace gantry::models {

class KimiDeltaMixer final : public LayerMixer {
 public:
  KimiDeltaMixer(const KimiDelta& kind, torch::nn::Module& layer, std::int64_t hidden);
  torch::Tensor forward(const torch::Tensor& input, const nn::TokenContext& tokens, int layer) override;

 private:
  // The logarithms of the decays, at most 0, [B, S, heads of the exchange, size], float32 or wider, from their
  // projection.
  torch::Tensor decays(const torch::Tensor& projected, const nn::HeadExchange& exchange);

  const KimiDelta kind_;
  nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, write_{nullptr}, output_{nullptr};
  nn::Linear decay_down_{nullptr}, decay_up_{nullptr}, gate_down_{nullptr}, gate_up_{nullptr};
  std::vector<nn::DepthwiseConvolution> convolutions_;
  nn::HeadParameter rate_{nullptr}, step_{nullptr};
  nn::RmsNorm norm_{nullptr};
};

}  // namespace gantry::models
