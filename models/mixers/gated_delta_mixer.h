// The module of gated delta networks.
#pragma once

#include "gantry/models/described/mixers/gated_delta.h"
#include "gantry/models/mixers/layer_mixer.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/depthwise_convolution.h"
#include "gantry/nn/head_decay.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/mixers/gated_delta.h"
#include "gantry/nn/norms.h"

namespace gantry::models {

class GatedDeltaMixer final : public LayerMixer {
 public:
  GatedDeltaMixer(const GatedDelta& kind, torch::nn::Module& layer, std::int64_t hidden);
  torch::Tensor forward(const torch::Tensor& input, const nn::TokenContext& tokens, int layer) override;

 private:
  struct Projected {
    torch::Tensor query, key, value;  // [B, S, local features]
    torch::Tensor gate;               // [B, S, local value heads, value size]
    torch::Tensor write, decay;       // [B, S, local value heads]
    nn::HeadRange values;
  };
  // The features of queries, keys and values in this number of channels with these value heads.
  std::vector<std::int64_t> widths(std::int64_t channels, std::int64_t value_heads) const;
  Projected projected(const torch::Tensor& input);
  Projected projected_by_group(const torch::Tensor& input);
  // The inputs of the recurrence for the heads of the exchange, with queries, keys and values in `channels`.
  nn::GatedDeltaInputs inputs(const torch::Tensor& channels, const torch::Tensor& write, const torch::Tensor& decay,
                              const nn::HeadExchange& exchange);

  const GatedDelta kind_;
  // The first of the joined projections, both grouped ones, or the separate ones of queries, keys and values.
  std::vector<nn::Linear> inputs_;
  nn::Linear gate_{nullptr}, write_{nullptr}, decay_input_{nullptr};  // null: grouped projections
  std::vector<nn::DepthwiseConvolution> convolutions_;  // one, or one for each of queries, keys and values
  nn::HeadDecay decay_{nullptr};
  nn::RmsNorm norm_{nullptr};
  nn::Linear output_{nullptr};
};

}  // namespace gantry::models
