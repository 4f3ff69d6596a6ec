// The configuration of a BERT, RoBERTa, XLM-R, DistilBERT, NomicBERT or ELECTRA model, by BERT's keys of Hugging Face's
// config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gantry/models/described/sentence_pooling.h"
#include "gantry/nn/rotary_options.h"

namespace gantry::models {

// The head of a model, and its outputs.
enum class BertHead {
  kNone,                    // {last_hidden_state [B, S, H]; pooler_output [B, H] if the family has a pooler;
                            // sentence_embedding [B, modes * H] with `sentence`}
  kMaskedLm,                // {logits [B, S, V]}
  kSequenceClassification,  // {logits [B, labels]}
  kQuestionAnswering,       // {logits [B, S, 2]}: score of each token as start and as end of the answer
  kTokenClassification,     // {logits [B, S, labels]}
  kMultipleChoice           // {logits [B, choices]} for inputs [B, choices, S]: each choice is a separate sequence
};

struct BertConfig {             // keys of Hugging Face's config.json
  std::string family = "bert";  // or "roberta" or "xlm-roberta", whose positions start at row pad_token_id + 1;
                                // or "distilbert", "nomic_bert" or "electra"
  std::int64_t vocab_size = 30522;
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  std::int64_t max_position_embeddings = 512;
  std::int64_t type_vocab_size = 2;  // 0: the model does not read token types
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

  // Features of single families.
  std::int64_t head_dim = 0;  // features of a head; 0: hidden_size / num_attention_heads
  std::int64_t embedding_size =
      0;  // features of the embeddings, if a projection follows them (ELECTRA); 0: hidden_size
  // The layers of NomicBERT: one projection of query, key and value, gated MLPs, and no biases.
  bool fused = false;
  std::optional<nn::RotaryOptions> rotary = {};         // not set: learned positions
  std::optional<double> attention_output_dropout = {};  // after the attention; not set: hidden_dropout_prob
  std::optional<double> mlp_output_dropout = {};        // after the MLP; not set: hidden_dropout_prob
  std::string pooler_activation = "tanh";
  bool is_pooled_without_head = true;            // the model without a head has the pooler of a classifier
  std::optional<SentencePooling> sentence = {};  // only if there is no head

  std::int64_t head_size() const { return head_dim > 0 ? head_dim : hidden_size / num_attention_heads; }
  std::int64_t embedding_width() const { return embedding_size > 0 ? embedding_size : hidden_size; }
  bool is_electra() const { return family == "electra"; }
  bool is_roberta() const { return family == "roberta" || family == "xlm-roberta"; }
  // Returns the number of outputs of a head that is not a masked language model's.
  std::int64_t outputs() const {
    if (head == BertHead::kMultipleChoice) return 1;
    return head == BertHead::kQuestionAnswering ? 2 : num_labels;
  }
  // True if a sample has several sequences: choices, or texts whose embeddings are compared.
  bool has_groups_of_texts() const { return head == BertHead::kMultipleChoice || (sentence && sentence->compares); }
  // Returns the maximum number of tokens of a sequence.
  std::int64_t longest() const { return max_position_embeddings - (is_roberta() ? *pad_token_id + 1 : 0); }
};

}  // namespace gantry::models
