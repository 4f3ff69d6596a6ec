// BERT, RoBERTa, XLM-R, DistilBERT, NomicBERT and ELECTRA for one device, built from layers that a policy can shard.
// Parameter names are those of Hugging Face's BERT without the "bert." prefix: embeddings.{word_embeddings,
// position_embeddings, token_type_embeddings, LayerNorm}, layers.N.*, pooler. The head has cls.{dense, LayerNorm,
// decoder} (the weight of decoder can be tied to word_embeddings), classifier or qa_outputs. The additional dense layer
// of RoBERTa's classifier is registered as pooler.
#pragma once

#include <optional>

#include "gantry/models/text_encoder.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/rotary.h"

namespace gantry::models {

class BertEmbeddingsImpl : public torch::nn::Module {
 public:
  explicit BertEmbeddingsImpl(const BertConfig& config);
  // [B, S] -> [B, S, H]. `positions`: int64 [B, S], rows of the position table; undefined: 0, 1, 2, ...
  torch::Tensor forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                        const torch::Tensor& positions);
  nn::Embedding word_embeddings{nullptr};
  nn::Embedding position_embeddings{nullptr}, token_type_embeddings{nullptr};  // null if the model has none
  nn::LayerNorm norm{nullptr};
  nn::Dropout dropout{nullptr};
};
TORCH_MODULE(BertEmbeddings);

// norm(dropout(dense(input)) + residual): post-norm, as in BERT.
class BertResidualImpl : public torch::nn::Module {
 public:
  BertResidualImpl(std::int64_t in_features, const BertConfig& config, double dropout_probability);
  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& residual);
  nn::Linear dense{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Dropout dropout{nullptr};
};
TORCH_MODULE(BertResidual);

class BertSelfAttentionImpl : public torch::nn::Module {
 public:
  explicit BertSelfAttentionImpl(const BertConfig& config);
  // [B, S, H] -> [B, S, H local]
  torch::Tensor forward(const torch::Tensor& hidden, const nn::TokenContext& tokens);
  nn::Linear query{nullptr}, key{nullptr}, value{nullptr};
  nn::Linear fused{nullptr};  // query, key and value one after the other, in place of the three
  nn::Dropout dropout{nullptr};

 private:
  torch::Tensor turned(const torch::Tensor& heads, const nn::TokenContext& tokens);

  std::int64_t heads_, head_size_;
  std::optional<nn::Rotary> rotary_;
};
TORCH_MODULE(BertSelfAttention);

class BertLayerImpl : public torch::nn::Module {
 public:
  explicit BertLayerImpl(const BertConfig& config);
  // Returns the parts "attention" and "mlp", each [B, S, H] -> [B, S, H].
  LayerParts parts(const nn::TokenContext& tokens);
  BertSelfAttention self{nullptr};
  BertResidual attention_output{nullptr}, output{nullptr};
  nn::Linear intermediate{nullptr};
  nn::Linear gate{nullptr};  // null: an MLP without a gate

 private:
  torch::Tensor wide(const torch::Tensor& hidden);

  std::string activation_;
};
TORCH_MODULE(BertLayer);

// The head of masked language models.
class BertPredictionsImpl : public torch::nn::Module {
 public:
  explicit BertPredictionsImpl(const BertConfig& config);
  TensorDict forward(const torch::Tensor& hidden);  // [B, S, H] -> the output of the stage: {logits [B, S, V]}
  nn::Linear dense{nullptr}, decoder{nullptr};
  nn::LayerNorm norm{nullptr};

 private:
  std::string activation_;
};
TORCH_MODULE(BertPredictions);

class BertImpl : public TextEncoderImpl {
 public:
  explicit BertImpl(const BertConfig& config);

  BertEmbeddings embeddings{nullptr};
  nn::Linear embeddings_project{nullptr};  // null: embeddings have the width of the layers
  BertPredictions cls{nullptr};            // modules that the head does not need are null
  nn::Linear pooler{nullptr}, classifier{nullptr}, qa_outputs{nullptr};
  nn::Dropout dropout{nullptr}, pooler_dropout{nullptr};

 protected:
  torch::Tensor embed(const TensorDict& inputs, const nn::TokenContext& tokens) override;
  LayerParts parts_of(int layer, const nn::TokenContext& tokens) override;
  TensorDict head(const torch::Tensor& hidden, const torch::Tensor& keep) override;

 private:
  torch::Tensor rows_of_positions(const TensorDict& inputs, const nn::TokenContext& tokens) const;
};
TORCH_MODULE(Bert);

}  // namespace gantry::models
