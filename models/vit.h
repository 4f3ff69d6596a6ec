// ViT (Dosovitskiy et al., arXiv 2010.11929) for one device, on layers that a policy can shard: an encoder of image
// patches, and a classifier of the class token. Parameter names are Hugging Face's without their "vit." prefix:
// embeddings.{cls_token, position_embeddings, patch_embeddings.projection}, layers.N.*, layernorm; classifier.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/models/described/encoder_configs.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/prepare_input.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

// Patches of an image as tokens, the class token before them, and their positions.
class VitEmbeddingsImpl : public torch::nn::Module {
 public:
  explicit VitEmbeddingsImpl(const VitConfig& config);
  // [B, C, size, size] -> [B, tokens, H]. `part`: if ranks share the sequence, only its tokens are returned.
  torch::Tensor forward(const torch::Tensor& pixels, const std::shared_ptr<const nn::SequencePart>& part);
  torch::Tensor cls_token, position_embeddings;  // [1, 1, H], [1, tokens, H]
  torch::Tensor weight, bias;                    // the projection of patches: [H, C, patch, patch], [H]
  nn::Dropout dropout{nullptr};

 private:
  std::int64_t patch_;
};
TORCH_MODULE(VitEmbeddings);

class VitLayerImpl : public torch::nn::Module {
 public:
  explicit VitLayerImpl(const VitConfig& config);
  // Returns the parts "attention" and "mlp": [B, S, H] -> [B, S, H].
  LayerParts parts(const nn::AttentionOptions& attention);

 private:
  torch::Tensor attend(const torch::Tensor& input, const nn::AttentionOptions& attention);

  std::int64_t heads_, head_size_;
  std::string activation_;
  nn::LayerNorm before_{nullptr}, after_{nullptr};
  nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, output_{nullptr}, up_{nullptr}, down_{nullptr};
  nn::Dropout attention_dropout_{nullptr}, output_dropout_{nullptr}, mlp_dropout_{nullptr};
};
TORCH_MODULE(VitLayer);

class VitImpl : public torch::nn::Module {
 public:
  explicit VitImpl(const VitConfig& config);

  // Runs the full model: {pixel_values real [B, channels, image_size, image_size]} -> {logits [B, labels]}.
  TensorDict forward(const TensorDict& inputs);
  // Runs one stage. Stages exchange {hidden [B, S, H]}. Throws InputError for images of another size.
  TensorDict stage_forward(const StageContext& stage, const TensorDict& input);

  const VitConfig config;

 private:
  torch::Tensor embed(const torch::Tensor& pixels, const std::shared_ptr<const nn::SequencePart>& part);

  VitEmbeddings embeddings_{nullptr};
  nn::PrepareInput enter_{nullptr}, full_sequence_{nullptr};  // to parts of the sequence, and back
  torch::nn::ModuleList layers_;
  nn::LayerNorm norm_{nullptr};
  nn::Linear classifier_{nullptr};
};
TORCH_MODULE(Vit);

}  // namespace gantry::models
