// The module of Mamba mixers.
#pragma once

#include "gantry/models/described/mixers/selective_scan.h"
#include "gantry/models/mixers/layer_mixer.h"
#include "gantry/nn/depthwise_convolution.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/prepare_input.h"
#include "gantry/nn/selective_channels.h"

namespace gantry::models {

class SelectiveScanMixer final : public LayerMixer {
 public:
  SelectiveScanMixer(const SelectiveScan& kind, torch::nn::Module& layer, std::int64_t hidden);
  torch::Tensor forward(const torch::Tensor& input, const nn::TokenContext& tokens, int layer) override;

 private:
  torch::Tensor normed(nn::RmsNorm& norm, const torch::Tensor& input) const;

  const SelectiveScanSizes sizes_;
  nn::Linear input_{nullptr}, selection_{nullptr}, steps_{nullptr}, output_{nullptr};
  nn::DepthwiseConvolution convolution_{nullptr};
  nn::RmsNorm step_norm_{nullptr}, input_norm_{nullptr}, output_norm_{nullptr};  // null: without weights, or none
  nn::EnterHeads enter_{nullptr};
  nn::SelectiveChannels channels_{nullptr};
};

}  // namespace gantry::models
