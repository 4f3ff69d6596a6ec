// The image encoder of a decoder: a tower of layers over patches, and a projector into the width of the decoder.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/models/described/vision_spec.h"
#include "gantry/nn/norms.h"
#include "gantry/tensors/tensor.h"

namespace gantry::models {

// Patches of images as tokens, and the layers over them. Registers embeddings.{class_embedding, patch_embedding,
// position_embedding}, pre_layrnorm, encoder.layers.N and post_layernorm, as far as the spec has them.
class VisionTowerImpl : public torch::nn::Module {
 public:
  VisionTowerImpl(const VisionSpec& spec, double initializer_range);
  // [images, channels, size, size] -> [images, places, tower's hidden]; also of no images.
  torch::Tensor forward(const torch::Tensor& pixels);

 private:
  torch::Tensor embed(const torch::Tensor& pixels);

  const VisionSpec spec_;
  torch::Tensor class_token_, patch_weight_, patch_bias_, positions_;  // undefined: none
  nn::LayerNorm before_{nullptr}, after_{nullptr};
  torch::nn::ModuleList layers_;
};
TORCH_MODULE(VisionTower);

// Converts the tower's result into the features that replace image tokens.
class ImageProjectorImpl : public torch::nn::Module {
 public:
  // `hidden`: the width of the decoder.
  ImageProjectorImpl(const VisionSpec& spec, std::int64_t hidden, double initializer_range);
  // [images, places, tower's hidden] -> [images, VisionSpec::features(), hidden]
  torch::Tensor forward(const torch::Tensor& places);

 private:
  torch::Tensor pooled(const torch::Tensor& places);

  const VisionSpec spec_;
  torch::Tensor projection_;
  nn::RmsNorm norm_{nullptr};
  nn::Linear first_{nullptr}, second_{nullptr};
};
TORCH_MODULE(ImageProjector);

// Returns the number of each token's image, from 1: int64 [samples, tokens]; 0: a token of text. `types`:
// token_type_ids, where 1 stands for a token of an image. Adjacent tokens are of one image.
torch::Tensor numbered_images(const torch::Tensor& types);

}  // namespace gantry::models
