// BERT and RoBERTa for one device, built from layers that a policy can shard. Parameter names are Hugging Face's
// without the "bert." prefix: embeddings.{word_embeddings, position_embeddings, token_type_embeddings, LayerNorm},
// layers.N.*, pooler. The head has cls.{dense, LayerNorm, decoder} (the weight of decoder can be tied to
// word_embeddings), classifier or qa_outputs. The additional dense layer of RoBERTa's classifier is registered as
// pooler.
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

// The head of a model, and its outputs.
enum class BertHead {
  kNone,                    // {last_hidden_state [B, S, H], pooler_output [B, H]}
  kMaskedLm,                // {logits [B, S, V]}
  kSequenceClassification,  // {logits [B, labels]}
  kQuestionAnswering,       // {logits [B, S, 2]}: score of each token as start and as end of the answer
  kTokenClassification,     // {logits [B, S, labels]}
  kMultipleChoice           // {logits [B, choices]} for inputs [B, choices, S]: each choice is a separate sequence
};

struct BertConfig {             // keys of Hugging Face's config.json
  std::string family = "bert";  // or "roberta", whose positions start at row pad_token_id + 1
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
  nn::PrepareInput whole_sequence{nullptr};
  nn::Linear pooler{nullptr}, classifier{nullptr}, qa_outputs{nullptr};
  nn::Dropout dropout{nullptr}, pooler_dropout{nullptr};

 private:
  TensorDict run_stage(const StageContext& stage, const TensorDict& input, const nn::TokenContext& tokens);
  TensorDict choose(const StageContext& stage, const TensorDict& input);
  std::int64_t longest() const;  // maximum number of tokens of a sample
  torch::Tensor rows_of_positions(const TensorDict& inputs, const nn::TokenContext& tokens) const;
  torch::Tensor embed(const TensorDict& inputs, const nn::TokenContext& known);  // -> [B, S, H]
  TensorDict head(const torch::Tensor& hidden);
};
TORCH_MODULE(Bert);

}  // namespace gantry::models
