// BERT and RoBERTa for one device, on layers that a policy can shard. Parameter names are Hugging Face's without their
// "bert." prefix: embeddings.{word_embeddings, position_embeddings, token_type_embeddings, LayerNorm}, layers.N.*,
// pooler; and those of the head: cls.{dense, LayerNorm, decoder} (decoder's weight is tied to word_embeddings or not),
// classifier, qa_outputs. RoBERTa's classifier has a dense layer of its own, which is registered as pooler.
#pragma once

#include <optional>

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/nn/attention.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/prepare_input.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

enum class BertHead {
  kNone,                    // {last_hidden_state [B, S, H], pooler_output [B, H]}
  kMaskedLm,                // {logits [B, S, V]}
  kSequenceClassification,  // {logits [B, labels]}
  kQuestionAnswering,       // {logits [B, S, 2]}: of each token as start and as end of the answer
  kTokenClassification,     // {logits [B, S, labels]}
  kMultipleChoice           // {logits [B, choices]}, of inputs [B, choices, S]: each choice is a sequence of its own
};

struct BertConfig {             // Hugging Face's keys
  std::string family = "bert";  // or "roberta", whose tokens count from the row behind pad_token_id's
  std::int64_t vocab_size = 30522;
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  std::int64_t max_position_embeddings = 512;
  std::int64_t type_vocab_size = 2;
  std::optional<std::int64_t> pad_token_id = 0;
  std::string hidden_act = "gelu";
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  double classifier_dropout = 0.1;
  double layer_norm_eps = 1e-12;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;
  BertHead head = BertHead::kMaskedLm;
  std::int64_t num_labels = 2;
};

class BertEmbeddingsImpl : public torch::nn::Module {
 public:
  explicit BertEmbeddingsImpl(const BertConfig& config);
  // [B, S] -> [B, S, H], at `positions` int64 [B, S] or at 0, 1, 2, ..., which are rows of the table
  torch::Tensor forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                        const torch::Tensor& positions);
  nn::Embedding word_embeddings{nullptr}, position_embeddings{nullptr}, token_type_embeddings{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Dropout dropout{nullptr};
};
TORCH_MODULE(BertEmbeddings);

// dropout(dense(x)) added to the residual, then the norm: BERT normalises after the sum.
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
  // "attention" and "mlp": [B, S, H] -> [B, S, H].
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

  // The whole model: {input_ids int64 [B, S]; attention_mask, token_type_ids, position_ids, document_ids [B, S] or
  // absent} -> what BertHead says. For multiple choice all are [B, choices, S], and documents are refused.
  TensorDict forward(const TensorDict& inputs);
  // The same of one stage; stages exchange {hidden [B, S, H]}, or [B, choices, S, H]. InputError if S is too long.
  TensorDict stage_forward(const StageContext& stage, const TensorDict& input);

  const BertConfig config;
  BertEmbeddings embeddings{nullptr};
  torch::nn::ModuleList layers;
  BertPredictions cls{nullptr};  // those that the head does not need stay null
  nn::PrepareInput whole_sequence{nullptr};
  nn::Linear pooler{nullptr}, classifier{nullptr}, qa_outputs{nullptr};
  nn::Dropout dropout{nullptr}, pooler_dropout{nullptr};

 private:
  TensorDict run_stage(const StageContext& stage, const TensorDict& input, const nn::TokenContext& tokens);
  TensorDict choose(const StageContext& stage, const TensorDict& input);
  std::int64_t longest() const;  // tokens of a sample
  torch::Tensor rows_of_positions(const TensorDict& inputs, const nn::TokenContext& tokens) const;
  torch::Tensor embed(const TensorDict& inputs, const nn::TokenContext& known);  // -> [B, S, H]
  TensorDict head(const torch::Tensor& hidden);
};
TORCH_MODULE(Bert);

}  // namespace gantry::models
