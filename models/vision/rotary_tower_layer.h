// A layer of the image encoders with rotary embeddings, Pixtral's and Qwen2.5-VL's, for full sequences on every rank of
// tp.
#pragma once

#include <string>
#include <vector>

#include "gantry/models/described/vision_spec.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/norms.h"

namespace gantry::models {

// The names of its parts, as published.
struct RotaryTowerNames {
  std::string attention_norm;
  std::vector<std::string> projections;  // one for queries, keys and values together, or three
  std::string output, dropout;
  std::string mlp_norm, gate, up, down;
  bool bias = false;  // whether all linear layers have a bias
};

// A norm, attention, a norm and a gated MLP, each pair with a residual.
class RotaryTowerLayerImpl : public torch::nn::Module {
 public:
  RotaryTowerLayerImpl(const TowerSpec& spec, const RotaryTowerNames& names);
  // [images or samples, patches, H]. `angles`: of the rotary embedding [1 or samples, patches, head size / 2].
  // `groups`: patches with the same number attend to each other; undefined: all.
  torch::Tensor forward(const torch::Tensor& hidden, const torch::Tensor& angles, const torch::Tensor& groups);

 private:
  torch::Tensor attend(const torch::Tensor& input, const torch::Tensor& angles, const torch::Tensor& groups);

  std::int64_t heads_, head_size_;
  std::string activation_;
  nn::RmsNorm before_attention_{nullptr}, before_mlp_{nullptr};
  std::vector<nn::Linear> projections_;
  nn::Linear output_{nullptr}, gate_{nullptr}, up_{nullptr}, down_{nullptr};
  nn::Dropout dropout_{nullptr};  // without effect: probability 0
};
TORCH_MODULE(RotaryTowerLayer);

}  // namespace gantry::models
