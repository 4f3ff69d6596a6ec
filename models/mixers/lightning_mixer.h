// The module of lightning attention.
#pragma once

#include "gantry/models/described/mixers/lightning.h"
#include "gantry/models/mixers/layer_mixer.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/norms.h"

namespace gantry::models {

class LightningMixer final : public LayerMixer {
 public:
  LightningMixer(const Lightning& kind, torch::nn::Module& layer, std::int64_t hidden);
  torch::Tensor forward(const torch::Tensor& input, const nn::TokenContext& tokens, int layer) override;

 private:
  const Lightning kind_;
  nn::Linear input_{nullptr}, gate_{nullptr}, output_{nullptr};
  nn::SplitRmsNorm norm_{nullptr};
};

}  // namespace gantry::models
