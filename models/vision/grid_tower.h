// The image encoder of Qwen2.5-VL (arXiv 2502.13923): patches of images of any size, layers that attend within windows
// or within frames, and a projector of squares of patches.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/models/vision/grid_layout.h"
#include "gantry/models/vision/image_encoder.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/norms.h"

namespace gantry::models {

// A norm, attention, a norm and a gated MLP, each pair with a residual. Registers norm1, attn.{qkv, proj}, norm2 and
// mlp.{gate_proj, up_proj, down_proj}.
class GridLayerImpl : public torch::nn::Module {
 public:
  explicit GridLayerImpl(const TowerSpec& spec);
  // [samples, patches, H]. `angles`: of the rotary embedding [samples, patches, head size / 2]. `groups`: patches with
  // the same number attend to each other.
  torch::Tensor forward(const torch::Tensor& hidden, const torch::Tensor& angles, const torch::Tensor& groups);

 private:
  torch::Tensor attend(const torch::Tensor& input, const torch::Tensor& angles, const torch::Tensor& groups);

  std::int64_t heads_, head_size_;
  std::string activation_;
  nn::RmsNorm before_attention_{nullptr}, before_mlp_{nullptr};
  nn::Linear rows_{nullptr}, output_{nullptr}, gate_{nullptr}, up_{nullptr}, down_{nullptr};
  nn::Dropout dropout_{nullptr};  // without effect: probability 0
};
TORCH_MODULE(GridLayer);

// Registers patch_embed.proj, blocks.N, merger.{ln_q, mlp.0, mlp.2}.
class GridTowerImpl : public torch::nn::Module {
 public:
  GridTowerImpl(const VisionSpec& spec, double initializer_range);
  // [samples, patches, channels * frames * patch * patch] -> [samples, squares, outputs]
  torch::Tensor forward(const torch::Tensor& pixels, const GridLayout& layout);

 private:
  const VisionSpec spec_;
  torch::Tensor patch_weight_;
  torch::nn::ModuleList layers_;
  nn::RmsNorm norm_{nullptr};
  nn::Linear wide_{nullptr}, output_{nullptr};
};
TORCH_MODULE(GridTower);

// Reads pixel_values [samples, patches, ...] and image_grid_thw.
class GridImages final : public ImageEncoder {
 public:
  GridImages(torch::nn::Module& root, const VisionSpec& spec, double initializer_range);
  torch::Tensor features(const TensorDict& batch, std::int64_t samples) override;
  void check_tokens(const torch::Tensor& input_ids, const TensorDict& batch) const override;

 private:
  const VisionSpec spec_;
  GridTower tower_{nullptr};
};

}  // namespace gantry::models
