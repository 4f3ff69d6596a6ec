// The image encoder of Mistral 3: Pixtral's tower (arXiv 2410.07073) over images of unequal sizes, and a projector that
// merges squares of patches.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/models/described/vision_spec.h"
#include "gantry/models/vision/image_encoder.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/norms.h"

namespace gantry::models {

// Registers patch_conv, ln_pre and transformer.layers.N, each with attention_norm, attention.{q_proj, k_proj, v_proj,
// o_proj}, ffn_norm and feed_forward.{gate_proj, up_proj, down_proj}.
class PixtralTowerImpl : public torch::nn::Module {
 public:
  PixtralTowerImpl(const VisionSpec& spec, double initializer_range);
  // [images, channels, height, width] -> [images, rows, columns, tower's hidden]
  torch::Tensor embed(const torch::Tensor& pixels);
  // Returns the layers for these patches. `groups` int64 [images, rows * columns]: see RotaryTowerLayer.
  ImageEncoder::Layer layers(const torch::Tensor& patches, const torch::Tensor& groups);

 private:
  const VisionSpec spec_;
  torch::Tensor patch_weight_;
  nn::RmsNorm norm_{nullptr};
  torch::nn::ModuleList layers_;
};
TORCH_MODULE(PixtralTower);

// Registers norm, patch_merger.merging_layer, linear_1 and linear_2.
class PatchProjectorImpl : public torch::nn::Module {
 public:
  // `hidden`: the width of the decoder.
  PatchProjectorImpl(const VisionSpec& spec, std::int64_t hidden);
  // [images, rows, columns, tower's hidden] -> [images, squares, hidden], row by row
  torch::Tensor forward(const torch::Tensor& patches);

 private:
  const VisionSpec spec_;
  nn::RmsNorm norm_{nullptr};
  nn::Linear merging_{nullptr}, first_{nullptr}, second_{nullptr};
};
TORCH_MODULE(PatchProjector);

}  // namespace gantry::models
