// CLIP and SigLIP for one device, on layers that a policy can shard. Parameters have the names in Hugging Face's files.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/models/described/contrastive_spec.h"
#include "gantry/models/vision/vision_tower.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/gather_samples.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

// Tokens and positions, layers, a norm and, for SigLIP, a projection of one token.
class TextTowerImpl : public torch::nn::Module {
 public:
  explicit TextTowerImpl(const ContrastiveSpec& spec);
  torch::Tensor embed(const torch::Tensor& input_ids);  // [B, S] -> [B, S, H]
  // The result of each text: [B, S, H] -> [B, H], or [B, width] for SigLIP.
  torch::Tensor pooled(const torch::Tensor& hidden, const torch::Tensor& input_ids);
  const torch::nn::ModuleList& layers() const { return layers_; }

 private:
  const ContrastiveSpec spec_;
  nn::Embedding tokens_{nullptr};
  torch::Tensor positions_;
  torch::nn::ModuleList layers_;
  nn::LayerNorm norm_{nullptr};
  nn::Linear head_{nullptr};
};
TORCH_MODULE(TextTower);

// SigLIP's head of the images: a learned query attends to all patches, and an MLP follows.
class ImageHeadImpl : public torch::nn::Module {
 public:
  explicit ImageHeadImpl(const TowerSpec& tower);
  torch::Tensor forward(const torch::Tensor& places);  // [B, S, H] -> [B, H]

 private:
  const TowerSpec tower_;
  torch::Tensor probe_, weight_, bias_;
  nn::Linear output_{nullptr}, up_{nullptr}, down_{nullptr};
  nn::LayerNorm norm_{nullptr};
  nn::Dropout dropout_{nullptr};  // without effect: probability 0
};
TORCH_MODULE(ImageHead);

class ContrastiveImpl : public torch::nn::Module {
 public:
  explicit ContrastiveImpl(const ContrastiveSpec& spec);

  // Reads input_ids [B, S], optionally attention_mask, and pixel_values [B, channels, size, size]. Returns
  // {image_embeds, text_embeds [B, width], logits_per_image, logits_per_text [B, samples of all replicas], losses [B]}:
  // the mean of `losses` is the loss.
  TensorDict forward(const TensorDict& inputs);
  // The same as the only stage. Throws InputError for images of another size and for longer texts.
  TensorDict stage_forward(const StageContext& stage, const TensorDict& input);

  const ContrastiveSpec spec;

 private:
  torch::Tensor text_result(const StageContext& stage, const TensorDict& input);
  torch::Tensor image_result(const StageContext& stage, const torch::Tensor& pixels);
  torch::Tensor losses(const torch::Tensor& per_image, const torch::Tensor& per_text, std::int64_t first) const;

  torch::Tensor scale_, bias_;
  TextTower text_{nullptr};
  VisionTower vision_{nullptr};
  ImageHead head_{nullptr};
  nn::Linear text_projection_{nullptr}, visual_projection_{nullptr};
  nn::GatherSamples samples_{nullptr};
};
TORCH_MODULE(Contrastive);

}  // namespace gantry::models
