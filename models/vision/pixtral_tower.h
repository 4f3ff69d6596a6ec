// The image encoder of Mistral 3: Pixtral's tower (arXiv 2410.07073) over images of unequal sizes, and a projector that
// merges squares of patches.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/models/described/vision_spec.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/norms.h"

namespace gantry::models {

// A norm, attention, a norm and a gated MLP, each pair with a residual. Registers attention_norm, attention.{q_proj,
// k_proj, v_proj, o_proj}, ffn_norm and feed_forward.{gate_proj, up_proj, down_proj}.
class PixtralLayerImpl : public torch::nn::Module {
 public:
  explicit PixtralLayerImpl(const TowerSpec& spec);
  // [images, patches, H]. `angles`: of the rotary embedding [1, patches, head size / 2]. `groups`: patches with the
  // same number attend to each other; undefined: all.
  torch::Tensor forward(const torch::Tensor& hidden, const torch::Tensor& angles, const torch::Tensor& groups);

 private:
  torch::Tensor attend(const torch::Tensor& input, const torch::Tensor& angles, const torch::Tensor& groups);

  std::int64_t heads_, head_size_;
  std::string activation_;
  nn::RmsNorm before_attention_{nullptr}, before_mlp_{nullptr};
  nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, output_{nullptr}, gate_{nullptr}, up_{nullptr},
      down_{nullptr};
  nn::Dropout dropout_{nullptr};  // without effect: probability 0
};
TORCH_MODULE(PixtralLayer);

// Registers patch_conv, ln_pre and transformer.layers.N.
class PixtralTowerImpl : public torch::nn::Module {
 public:
  PixtralTowerImpl(const VisionSpec& spec, double initializer_range);
  // [images, channels, height, width] -> [images, patches, tower's hidden], row by row. `groups` int64 [images,
  // patches]: see PixtralLayer.
  torch::Tensor forward(const torch::Tensor& pixels, const torch::Tensor& groups);

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
  // [images, patches, tower's hidden] of images with `columns` patches in a row -> [images, squares, hidden], row by
  // row.
  torch::Tensor forward(const torch::Tensor& patches, std::int64_t columns);

 private:
  const VisionSpec spec_;
  nn::RmsNorm norm_{nullptr};
  nn::Linear merging_{nullptr}, first_{nullptr}, second_{nullptr};
};
TORCH_MODULE(PatchProjector);

}  // namespace gantry::models
