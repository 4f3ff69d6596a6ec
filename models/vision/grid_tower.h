// The image encoder of Qwen2.5-VL (arXiv 2502.13923): patches of images of any size, layers that attend within windows
// or within frames, and a projector of squares of patches.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/models/vision/grid_layout.h"
#include "gantry/models/vision/image_encoder.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/norms.h"

namespace gantry::models {

// Registers patch_embed.proj, blocks.N, each with norm1, attn.{qkv, proj}, norm2 and mlp.{gate_proj, up_proj,
// down_proj}, and merger.{ln_q, mlp.0, mlp.2}.
class GridTowerImpl : public torch::nn::Module {
 public:
  GridTowerImpl(const VisionSpec& spec, double initializer_range);
  // [samples, patches, channels * frames * patch * patch] -> [samples, patches, tower's hidden]
  torch::Tensor embed(const torch::Tensor& pixels);
  ImageEncoder::Layer layers(const GridLayout& layout, torch::ScalarType type);
  // The patches after the last layer -> [samples, squares, outputs]
  torch::Tensor merge(const torch::Tensor& patches);

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
  torch::Tensor embed(const TensorDict& batch) override;
  Layer layers(const torch::Tensor& patches, const TensorDict& batch) override;
  torch::Tensor features(const torch::Tensor& patches, const TensorDict& batch, std::int64_t samples) override;
  void check_tokens(const torch::Tensor& input_ids, const torch::Tensor& patches,
                    const TensorDict& batch) const override;

 private:
  const VisionSpec spec_;
  GridTower tower_{nullptr};
};

}  // namespace gantry::models
