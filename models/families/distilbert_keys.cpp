#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/encoder_configs.h"

namespace gantry::models {
namespace {

// Each head has a dropout of its own.
double read_distilbert_dropout(ConfigReader& reader, const BertConfig& config) {
  const double of_answers = reader.number("qa_dropout", 0.1, 0, 1);
  const double of_sequences = reader.number("seq_classif_dropout", 0.2, 0, 1);
  if (config.head == BertHead::kQuestionAnswering) return of_answers;
  return config.head == BertHead::kTokenClassification ? config.hidden_dropout_prob : of_sequences;
}

}  // namespace

// BERT without token types, whose classifier of sequences has another activation.
BertConfig read_distilbert(ConfigReader& reader) {
  BertConfig config{.family = "distilbert", .type_vocab_size = 0, .layer_norm_eps = 1e-12};
  reader.only("sinusoidal_pos_embds", false, "Gantry trains the positions of DistilBERT");
  config.vocab_size = reader.size("vocab_size", config.vocab_size);
  config.hidden_size = reader.size("dim", config.hidden_size);
  config.num_hidden_layers = reader.size("n_layers", 6);
  config.num_attention_heads = reader.size("n_heads", config.num_attention_heads);
  config.intermediate_size = reader.size("hidden_dim", config.intermediate_size);
  config.max_position_embeddings = reader.size("max_position_embeddings", config.max_position_embeddings);
  config.pad_token_id = read_padding_token(reader, 0, config.vocab_size);
  config.hidden_act = reader.activation("activation", "gelu");
  config.hidden_dropout_prob = reader.number("dropout", config.hidden_dropout_prob, 0, 1);
  config.attention_output_dropout = 0;
  config.attention_probs_dropout_prob = reader.number("attention_dropout", 0.1, 0, 1);
  config.initializer_range = reader.number("initializer_range", config.initializer_range, 0, 100);
  config.tie_word_embeddings = reader.flag("tie_word_embeddings", true);
  config.pooler_activation = "relu";
  config.is_pooled_without_head = false;
  read_text_head(reader, config, "DistilBert");
  config.classifier_dropout = read_distilbert_dropout(reader, config);
  require_multiple_of_heads("dim", config.hidden_size, "n_heads", config.num_attention_heads);
  return config;
}

}  // namespace gantry::models
