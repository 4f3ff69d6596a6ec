#include <fmt/format.h>
#include <map>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/encoder_configs.h"
#include "gantry/models/described/sentence_modules.h"

namespace gantry::models {
namespace {

using nlohmann::json;

const std::map<std::string, BertHead>& bert_heads() {
  static const std::map<std::string, BertHead> heads = {
      {"Model", BertHead::kNone},
      {"ForMaskedLM", BertHead::kMaskedLm},
      {"ForSequenceClassification", BertHead::kSequenceClassification},
      {"ForTokenClassification", BertHead::kTokenClassification},
      {"ForQuestionAnswering", BertHead::kQuestionAnswering},
      {"ForMultipleChoice", BertHead::kMultipleChoice}};
  return heads;
}

std::optional<std::int64_t> read_bert_padding(ConfigReader& reader, const BertConfig& config) {
  const std::optional<std::int64_t> padding = read_padding_token(reader, *config.pad_token_id, config.vocab_size);
  if (!config.is_roberta()) return padding;
  if (!padding || *padding + 1 >= config.max_position_embeddings)
    refuse_key("pad_token_id", padding ? json(*padding) : json(nullptr),
               fmt::format("a token from 0 to {}, because positions are counted from the next row",
                           config.max_position_embeddings - 2));
  return padding;
}

BertConfig read_bert_like(ConfigReader& reader, BertConfig config, const std::string& stem) {
  reader.only("position_embedding_type", "absolute", "Gantry has no relative positions for " + stem);
  reader.only("is_decoder", false, "Gantry has no causal " + stem);
  config.vocab_size = reader.size("vocab_size", config.vocab_size);
  config.hidden_size = reader.size("hidden_size", config.hidden_size);
  config.num_hidden_layers = reader.size("num_hidden_layers", config.num_hidden_layers);
  config.num_attention_heads = reader.size("num_attention_heads", config.num_attention_heads);
  config.intermediate_size = reader.size("intermediate_size", config.intermediate_size);
  config.max_position_embeddings = reader.size("max_position_embeddings", config.max_position_embeddings);
  config.type_vocab_size = reader.size("type_vocab_size", config.type_vocab_size);
  config.pad_token_id = read_bert_padding(reader, config);
  config.hidden_act = reader.activation("hidden_act", config.hidden_act);
  config.hidden_dropout_prob = reader.number("hidden_dropout_prob", config.hidden_dropout_prob, 0, 1);
  config.attention_probs_dropout_prob =
      reader.number("attention_probs_dropout_prob", config.attention_probs_dropout_prob, 0, 1);
  reader.ignore("classifier_dropout");
  config.classifier_dropout = number_key(reader.keys(), "classifier_dropout", config.hidden_dropout_prob, 0, 1);
  config.layer_norm_eps = reader.number("layer_norm_eps", config.layer_norm_eps, 0, 1);
  config.initializer_range = reader.number("initializer_range", config.initializer_range, 0, 100);
  config.tie_word_embeddings = reader.flag("tie_word_embeddings", config.tie_word_embeddings);
  read_text_head(reader, config, stem);
  if (config.head == BertHead::kMultipleChoice && config.is_roberta())
    config.classifier_dropout = config.hidden_dropout_prob;
  if (config.head == BertHead::kQuestionAnswering) config.classifier_dropout = 0;
  require_multiple_of_heads("hidden_size", config.hidden_size, "num_attention_heads", config.num_attention_heads);
  return config;
}

}  // namespace

std::string bert_architecture(const json& keys, const std::string& stem) {
  if (has_key(keys, kSentenceModules)) return stem + "Model";
  const std::string named = architecture_key(keys);
  // transformers has no other heads of NomicBERT.
  const bool is_missing = stem == "NomicBert" && (named.ends_with("QuestionAnswering") || named.ends_with("Choice"));
  const bool is_known = named.starts_with(stem) && !is_missing && bert_heads().contains(named.substr(stem.size()));
  return is_known ? named : stem + "ForMaskedLM";
}

void read_text_head(ConfigReader& reader, BertConfig& config, const std::string& stem) {
  const std::string architecture = bert_architecture(reader.keys(), stem);
  config.head = bert_heads().at(architecture.substr(stem.size()));
  config.num_labels = label_count(reader.keys());
  if (config.head == BertHead::kSequenceClassification) problem_type_of(reader.keys(), config.num_labels);
  reader.decides("architectures", {architecture});
  config.sentence = read_sentence_modules(reader);
  // The pooler of a classifier would get no gradients.
  if (config.sentence && config.sentence->compares) config.is_pooled_without_head = false;
}

std::optional<std::int64_t> read_padding_token(ConfigReader& reader, std::int64_t missing, std::int64_t vocabulary) {
  if (!reader.keys().contains("pad_token_id")) return missing < vocabulary ? std::optional(missing) : std::nullopt;
  if (!reader.has("pad_token_id")) return std::nullopt;
  const std::int64_t padding = reader.size("pad_token_id", 0, 0);
  if (padding >= vocabulary) refuse_key("pad_token_id", padding, fmt::format("below vocab_size {}", vocabulary));
  return padding;
}

BertConfig read_bert(ConfigReader& reader) { return read_bert_like(reader, {}, "Bert"); }

BertConfig read_roberta(ConfigReader& reader) {
  return read_bert_like(reader, {.family = "roberta", .vocab_size = 50265, .pad_token_id = 1}, "Roberta");
}

BertConfig read_xlm_roberta(ConfigReader& reader) {
  return read_bert_like(reader, {.family = "xlm-roberta", .pad_token_id = 1}, "XLMRoberta");
}

// The heads for sequences and choices have a layer with GELU on the first token.
BertConfig read_electra(ConfigReader& reader) {
  BertConfig config = read_bert_like(reader,
                                     {.family = "electra",
                                      .hidden_size = 256,
                                      .num_attention_heads = 4,
                                      .intermediate_size = 1024,
                                      .pooler_activation = "gelu",
                                      .is_pooled_without_head = false},
                                     "Electra");
  config.embedding_size = reader.size("embedding_size", 128);
  const double dropout = reader.number("summary_last_dropout", 0.1, 0, 1);
  if (config.head != BertHead::kMultipleChoice) {
    for (const char* key : {"summary_type", "summary_use_proj", "summary_activation"}) reader.ignore(key);
    return config;
  }
  const std::string reason = "Gantry has no other summary of a sequence for ELECTRA";
  reader.only("summary_type", "first", reason);
  reader.only("summary_use_proj", true, reason);
  reader.only("summary_activation", "gelu", reason);
  config.classifier_dropout = dropout;
  return config;
}

}  // namespace gantry::models
