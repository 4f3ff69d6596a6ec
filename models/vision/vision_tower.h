// The tower over the patches of images of one size.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/models/described/vision_spec.h"
#include "gantry/nn/norms.h"
#include "gantry/tensors/tensor.h"

namespace gantry::models {

// Patches of images as tokens, and the layers over them. Registers embeddings.{class_embedding, patch_embedding,
// position_embedding}, pre_layrnorm, encoder.layers.N and post_layernorm, those that the spec has.
class VisionTowerImpl : public torch::nn::Module {
 public:
  VisionTowerImpl(const VisionSpec& spec, double initializer_range);
  // [images, channels, size, size] -> [images, places, tower's hidden]; also of no images.
  torch::Tensor embed(const torch::Tensor& pixels);
  const torch::nn::ModuleList& layers() const { return layers_; }
  torch::Tensor normed(const torch::Tensor& hidden);  // the norm after the layers, if there is one

 private:
  const VisionSpec spec_;
  torch::Tensor class_token_, patch_weight_, patch_bias_, positions_;  // undefined: none
  nn::LayerNorm before_{nullptr}, after_{nullptr};
  torch::nn::ModuleList layers_;
};
TORCH_MODULE(VisionTower);

}  // namespace gantry::models
