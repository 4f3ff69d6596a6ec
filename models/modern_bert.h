// ModernBERT (Warner et al., arXiv 2412.13663) for one device, built from layers that a policy can shard: norms before
// the blocks, rotary positions, gated MLPs, and local attention in some layers. Parameter names are Hugging Face's
// without the "model." prefix: embeddings.{tok_embeddings, norm}, layers.N.{attn_norm, attn.{Wqkv, Wo}, mlp_norm,
// mlp.{Wi, Wo}}, final_norm, head.{dense, norm}, and decoder or classifier.
#pragma once

#include "gantry/models/described/encoder_configs.h"
#include "gantry/models/text_encoder.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/rotary.h"

namespace gantry::models {

class ModernBertLayerImpl : public torch::nn::Module {
 public:
  ModernBertLayerImpl(const ModernBertConfig& config, std::int64_t layer);
  // Returns the parts "attention" and "mlp", each [B, S, H] -> [B, S, H].
  LayerParts parts(const nn::TokenContext& tokens);

 private:
  torch::Tensor attend(const torch::Tensor& input, const nn::TokenContext& tokens);
  torch::Tensor mlp(const torch::Tensor& input);

  std::int64_t heads_, head_size_, window_;
  std::string activation_;
  nn::LayerNorm attention_norm_{nullptr}, mlp_norm_{nullptr};  // the first layer has no norm before its attention
  nn::Linear fused_{nullptr}, output_{nullptr}, fused_gate_{nullptr}, down_{nullptr};
  nn::Dropout attention_dropout_{nullptr}, output_dropout_{nullptr}, mlp_dropout_{nullptr};
  nn::Rotary rotary_;
};
TORCH_MODULE(ModernBertLayer);

class ModernBertImpl : public TextEncoderImpl {
 public:
  explicit ModernBertImpl(const ModernBertConfig& config);

  const ModernBertConfig modern;
  nn::Linear decoder{nullptr}, classifier{nullptr};  // modules that the head does not need are null

 protected:
  torch::Tensor embed(const TensorDict& inputs, const nn::TokenContext& tokens) override;
  LayerParts parts_of(int layer, const nn::TokenContext& tokens) override;
  torch::Tensor finished(const torch::Tensor& hidden) override;
  TensorDict head(const torch::Tensor& hidden, const torch::Tensor& keep) override;
  bool reads_all_tokens() const override;

 private:
  torch::Tensor predictions(const torch::Tensor& hidden);
  torch::Tensor pooled(const torch::Tensor& hidden, const torch::Tensor& keep) const;

  nn::Embedding table_{nullptr};
  nn::LayerNorm embedding_norm_{nullptr}, final_norm_{nullptr}, head_norm_{nullptr};
  nn::Linear head_dense_{nullptr};
  nn::Dropout embedding_dropout_{nullptr}, head_dropout_{nullptr};
};
TORCH_MODULE(ModernBert);

}  // namespace gantry::models
