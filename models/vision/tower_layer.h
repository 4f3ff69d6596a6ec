// A layer of the encoders of CLIP and SigLIP, for full sequences on every rank of tp.
#pragma once

#include <string>

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/models/described/vision_spec.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/norms.h"

namespace gantry::models {

// Norm, attention, norm and MLP, each pair with a residual. Registers layer_norm1, self_attn.{q_proj, k_proj, v_proj,
// out_proj}, layer_norm2 and mlp.{fc1, fc2}.
class TowerLayerImpl : public torch::nn::Module {
 public:
  explicit TowerLayerImpl(const TowerSpec& spec);
  torch::Tensor forward(const torch::Tensor& hidden, const nn::AttentionOptions& attention);  // [B, S, H]

 private:
  torch::Tensor attend(const torch::Tensor& input, const nn::AttentionOptions& attention);

  std::int64_t heads_, head_size_;
  std::string activation_;
  nn::LayerNorm before_attention_{nullptr}, before_mlp_{nullptr};
  nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, output_{nullptr}, up_{nullptr}, down_{nullptr};
  nn::Dropout dropout_{nullptr};  // without effect: probability 0
};
TORCH_MODULE(TowerLayer);

}  // namespace gantry::models
