// BERT, RoBERTa and XLM-R for one device, built from layers that a policy can shard. Parameter names are Hugging Face's
// without the "bert." prefix: embeddings.{word_embeddings, position_embeddings, token_type_embeddings, LayerNorm},
// layers.N.*, pooler. The head has cls.{dense, LayerNorm, decoder} (the weight of decoder can be tied to
// word_embeddings), classifier or qa_outputs. The additional dense layer of RoBERTa's classifier is registered as
// pooler.
#pragma once

#include <optional>

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/models/described/bert_config.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/prepare_input.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

class BertEmbeddingsImpl : public torch::nn::Module {
 public:
  explicit BertEmbeddingsImpl(const BertConfig& config);
  // [B, S] -> [B, S, H]. `positions`: int64 [B, S], rows of the position table; undefined: 0, 1, 2, ...
  torch::Tensor forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                        const torch::Tensor& positions);
  nn::Embedding word_embeddings{nullptr}, position_embeddings{nullptr}, token_type_embeddings{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Dropout dropout{nullptr};
};
TORCH_MODULE(BertEmbeddings);

// norm(dropout(dense(input)) + residual): post-norm, as in BERT.
class BertResidualImpl : public torch::nn::Module {
 public:
  BertResidualImpl(std::int64_t in_features, const BertConfig& config);
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
  torch::Tensor forward(const torch::Tensor& hidden, const nn::AttentionOptions& attention);
  nn::Linear query{nullptr}, key{nullptr}, value{nullptr};
  nn::Dropout dropout{nullptr};

 private:
  std::int64_t heads_, head_size_;
};
TORCH_MODULE(BertSelfAttention);

class BertLayerImpl : public torch::nn::Module {
 public:
  explicit BertLayerImpl(const BertConfig& config);
  // Returns the parts "attention" and "mlp", each [B, S, H] -> [B, S, H].
  LayerParts parts(const nn::AttentionOptions& attention);
  BertSelfAttention self{nullptr};
  BertResidual attention_output{nullptr}, output{nullptr};
  nn::Linear intermediate{nullptr};

 private:
  std::string activation_;
};
TORCH_MODULE(BertLayer);

// The head of masked language models.
class BertPredictionsImpl : public torch::nn::Module {
 public:
  explicit BertPredictionsImpl(const BertConfig& config);
  torch::Tensor forward(const torch::Tensor& hidden);  // [B, S, H] -> [B, S, V]
  nn::Linear dense{nullptr}, decoder{nullptr};
  nn::LayerNorm norm{nullptr};

 private:
  std::string activation_;
};
TORCH_MODULE(BertPredictions);

class BertImpl : public torch::nn::Module {
 public:
  explicit BertImpl(const BertConfig& config);

  // Runs the full model: {input_ids int64 [B, S]; optional: attention_mask, token_type_ids, position_ids, document_ids
  // [B, S]} -> the outputs that BertHead lists. For multiple choice all inputs are [B, choices, S], and document_ids
  // are rejected.
  TensorDict forward(const TensorDict& inputs);
  // Runs one stage. Stages exchange {hidden [B, S, H]}, or [B, choices, S, H]. Throws InputError if S exceeds the
  // model's positions.
  TensorDict stage_forward(const StageContext& stage, const TensorDict& input);

  const BertConfig config;
  BertEmbeddings embeddings{nullptr};
  torch::nn::ModuleList layers;
  BertPredictions cls{nullptr};  // modules that the head does not need are null
  nn::PrepareInput full_sequence{nullptr};
  nn::Linear pooler{nullptr}, classifier{nullptr}, qa_outputs{nullptr};
  nn::Dropout dropout{nullptr}, pooler_dropout{nullptr};

 private:
  TensorDict run_stage(const StageContext& stage, const TensorDict& input, const nn::TokenContext& tokens);
  TensorDict choose(const StageContext& stage, const TensorDict& input);
  torch::Tensor rows_of_positions(const TensorDict& inputs, const nn::TokenContext& tokens) const;
  torch::Tensor embed(const TensorDict& inputs, const nn::TokenContext& known);  // -> [B, S, H]
  TensorDict head(const torch::Tensor& hidden);
};
TORCH_MODULE(Bert);

}  // namespace gantry::models
