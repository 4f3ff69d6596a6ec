// The configuration of a BERT, RoBERTa or XLM-R model, by the keys of Hugging Face's config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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
  std::string family = "bert";  // or "roberta" or "xlm-roberta", whose positions start at row pad_token_id + 1
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

  bool is_roberta() const { return family == "roberta" || family == "xlm-roberta"; }
  // Returns the maximum number of tokens of a sequence.
  std::int64_t longest() const { return max_position_embeddings - (is_roberta() ? *pad_token_id + 1 : 0); }
};

}  // namespace gantry::models
