#include "gantry/models/bert_family.h"

#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/nn/activation_names.h"

namespace gantry::models {
namespace {

using nlohmann::json;

const std::map<std::string, BertHead>& heads() {
  static const std::map<std::string, BertHead> all = {
      {"BertModel", BertHead::kNone},
      {"BertForMaskedLM", BertHead::kMaskedLm},
      {"BertForSequenceClassification", BertHead::kSequenceClassification},
      {"BertForQuestionAnswering", BertHead::kQuestionAnswering}};
  return all;
}

std::string architecture(const json& keys) {
  if (!has_key(keys, "architectures")) return "BertForMaskedLM";
  const json& listed = keys["architectures"];
  if (listed.is_array() && listed.size() == 1 && listed[0].is_string() && heads().contains(listed[0])) return listed[0];
  refuse_key("architectures", listed,
             "one of [BertModel], [BertForMaskedLM], [BertForSequenceClassification], [BertForQuestionAnswering]");
}

std::int64_t label_count(const json& keys) {
  if (has_key(keys, "id2label") && keys["id2label"].is_object() && !keys["id2label"].empty())
    return static_cast<std::int64_t>(keys["id2label"].size());
  return size_key(keys, "num_labels", 2);
}

// Ours to Hugging Face's, of one layer.
const std::vector<std::pair<std::string, std::string>> kLayerNames = {
    {"self.query", "attention.self.query"},
    {"self.key", "attention.self.key"},
    {"self.value", "attention.self.value"},
    {"attention_output.dense", "attention.output.dense"},
    {"attention_output.LayerNorm", "attention.output.LayerNorm"},
    {"intermediate", "intermediate.dense"},
    {"output.dense", "output.dense"},
    {"output.LayerNorm", "output.LayerNorm"}};

class NameList {
 public:
  void add(const std::string& ours, const std::string& theirs, bool new_allowed = false) {
    names_.push_back({.name = ours, .hugging_face = theirs, .new_allowed = new_allowed});
  }
  void add_both(const std::string& ours, const std::string& theirs, bool new_allowed = false) {
    add(ours + ".weight", theirs + ".weight", new_allowed);
    add(ours + ".bias", theirs + ".bias", new_allowed);
  }
  void copy_last(const std::string& theirs) { names_.back().copies.push_back(theirs); }
  std::vector<TensorName> take() { return std::move(names_); }

 private:
  std::vector<TensorName> names_;
};

std::vector<TensorName> bert_tensor_names(const json& keys) {
  const BertConfig config = bert_config(keys);
  const std::string prefix = config.head == BertHead::kNone ? "" : "bert.";
  NameList names;
  for (const char* part : {"word_embeddings", "position_embeddings", "token_type_embeddings"})
    names.add(fmt::format("embeddings.{}.weight", part), fmt::format("{}embeddings.{}.weight", prefix, part));
  names.add_both("embeddings.LayerNorm", prefix + "embeddings.LayerNorm");
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    for (const auto& [ours, theirs] : kLayerNames)
      names.add_both(fmt::format("layers.{}.{}", layer, ours),
                     fmt::format("{}encoder.layer.{}.{}", prefix, layer, theirs));
  if (config.head == BertHead::kNone || config.head == BertHead::kSequenceClassification)
    names.add_both("pooler", prefix + "pooler.dense", true);
  if (config.head == BertHead::kMaskedLm) {
    names.add_both("cls.dense", "cls.predictions.transform.dense", true);
    names.add_both("cls.LayerNorm", "cls.predictions.transform.LayerNorm", true);
    if (!config.tie_word_embeddings) names.add("cls.decoder.weight", "cls.predictions.decoder.weight", true);
    // The bias is cls.predictions.bias, which transformers ties to the decoder's; an untied decoder has its own.
    names.add("cls.decoder.bias", config.tie_word_embeddings ? "cls.predictions.bias" : "cls.predictions.decoder.bias",
              true);
    // An untied model of transformers still has the parameter, and does not use it.
    if (!config.tie_word_embeddings) names.copy_last("cls.predictions.bias");
  }
  if (config.head == BertHead::kSequenceClassification) names.add_both("classifier", "classifier", true);
  if (config.head == BertHead::kQuestionAnswering) names.add_both("qa_outputs", "qa_outputs", true);
  return names.take();
}

// Older files say gamma and beta, and carry buffers; the prefix depends on the head that was saved.
std::string bert_normalise(const json& keys, const std::string& file_name) {
  std::string name = file_name;
  if (name.ends_with(".gamma")) name = name.substr(0, name.size() - 5) + "weight";
  if (name.ends_with(".beta")) name = name.substr(0, name.size() - 4) + "bias";
  if (name.ends_with("embeddings.position_ids") || name.starts_with("cls.seq_relationship.")) return "";
  const BertConfig config = bert_config(keys);
  if (name.starts_with("cls.predictions.decoder.") && config.tie_word_embeddings) return "";
  if (name == "cls.predictions.bias" && !config.tie_word_embeddings) return "";
  const bool body = name.find("embeddings.") != std::string::npos || name.find("encoder.") != std::string::npos ||
                    name.find("pooler.") != std::string::npos;
  const bool prefixed = name.starts_with("bert.");
  if (config.head == BertHead::kNone && prefixed) return name.substr(5);
  return config.head != BertHead::kNone && body && !prefixed ? "bert." + name : name;
}

// What another head than this model's left in the file.
bool bert_is_other_heads(const json&, const std::string& name) {
  for (const char* part : {"cls.", "classifier.", "qa_outputs.", "pooler.", "bert.pooler."})
    if (name.starts_with(part)) return true;
  return false;
}

std::string task(const json& keys) {
  const BertHead head = bert_config(keys).head;
  if (head == BertHead::kNone) return "none";
  return head == BertHead::kQuestionAnswering ? "spans" : "tokens";
}

json bert_hugging_face_config(const json& keys) {
  const BertConfig config = bert_config(keys);
  json whole = keys;
  whole["model_type"] = "bert";
  whole["architectures"] = {architecture(keys)};
  whole["vocab_size"] = config.vocab_size;
  whole["hidden_size"] = config.hidden_size;
  whole["num_hidden_layers"] = config.num_hidden_layers;
  whole["num_attention_heads"] = config.num_attention_heads;
  whole["intermediate_size"] = config.intermediate_size;
  whole["max_position_embeddings"] = config.max_position_embeddings;
  whole["type_vocab_size"] = config.type_vocab_size;
  whole["pad_token_id"] = config.pad_token_id ? json(*config.pad_token_id) : json(nullptr);
  whole["hidden_act"] = config.hidden_act;
  whole["hidden_dropout_prob"] = config.hidden_dropout_prob;
  whole["attention_probs_dropout_prob"] = config.attention_probs_dropout_prob;
  whole["layer_norm_eps"] = config.layer_norm_eps;
  whole["initializer_range"] = config.initializer_range;
  whole["tie_word_embeddings"] = config.tie_word_embeddings;
  if (config.head == BertHead::kSequenceClassification && !has_key(whole, "id2label"))
    for (std::int64_t label = 0; label < config.num_labels; ++label)
      whole["id2label"][std::to_string(label)] = fmt::format("LABEL_{}", label);
  return whole;
}

json bert_keys_that_decide(const json& keys) {
  json deciding = keys_of(
      bert_hugging_face_config(keys),
      {"architectures", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
       "max_position_embeddings", "type_vocab_size", "hidden_act", "layer_norm_eps", "tie_word_embeddings"});
  const BertConfig config = bert_config(keys);
  if (config.head == BertHead::kSequenceClassification) deciding["num_labels"] = config.num_labels;
  return deciding;
}

}  // namespace

BertConfig bert_config(const json& keys) {
  require_object(keys, "BERT");
  only_value(keys, "model_type", "bert");
  only_value(keys, "position_embedding_type", "absolute");
  only_value(keys, "is_decoder", false);
  only_value(keys, "add_cross_attention", false);
  BertConfig config;
  config.vocab_size = size_key(keys, "vocab_size", config.vocab_size);
  config.hidden_size = size_key(keys, "hidden_size", config.hidden_size);
  config.num_hidden_layers = size_key(keys, "num_hidden_layers", config.num_hidden_layers);
  config.num_attention_heads = size_key(keys, "num_attention_heads", config.num_attention_heads);
  config.intermediate_size = size_key(keys, "intermediate_size", config.intermediate_size);
  config.max_position_embeddings = size_key(keys, "max_position_embeddings", config.max_position_embeddings);
  config.type_vocab_size = size_key(keys, "type_vocab_size", config.type_vocab_size);
  if (keys.contains("pad_token_id")) config.pad_token_id = std::nullopt;
  if (has_key(keys, "pad_token_id")) config.pad_token_id = size_key(keys, "pad_token_id", 0, 0);
  if (config.pad_token_id && *config.pad_token_id >= config.vocab_size)
    refuse_key("pad_token_id", *config.pad_token_id, fmt::format("below vocab_size {}", config.vocab_size));
  config.hidden_act = choice_key(keys, "hidden_act", config.hidden_act, nn::activation_names());
  config.hidden_dropout_prob = number_key(keys, "hidden_dropout_prob", config.hidden_dropout_prob, 0, 1);
  config.attention_probs_dropout_prob =
      number_key(keys, "attention_probs_dropout_prob", config.attention_probs_dropout_prob, 0, 1);
  config.classifier_dropout = number_key(keys, "classifier_dropout", config.hidden_dropout_prob, 0, 1);
  config.layer_norm_eps = number_key(keys, "layer_norm_eps", config.layer_norm_eps, 0, 1);
  config.initializer_range = number_key(keys, "initializer_range", config.initializer_range, 0, 100);
  config.tie_word_embeddings = flag_key(keys, "tie_word_embeddings", config.tie_word_embeddings);
  config.head = heads().at(architecture(keys));
  config.num_labels = label_count(keys);
  if (config.hidden_size % config.num_attention_heads != 0)
    refuse_key("hidden_size", config.hidden_size,
               fmt::format("a multiple of num_attention_heads {}", config.num_attention_heads));
  return config;
}

ModelFamily bert_family() {
  return {.build = [](const json& keys) -> std::shared_ptr<torch::nn::Module> {
            return std::make_shared<BertImpl>(bert_config(keys));
          },
          .tensor_names = bert_tensor_names,
          .hugging_face_config = bert_hugging_face_config,
          .model_type = "bert",
          .architectures = {"BertForMaskedLM"},
          .vocabulary_size = [](const json& keys) { return bert_config(keys).vocab_size; },
          .context_length = [](const json& keys) { return bert_config(keys).max_position_embeddings; },
          .task = task,
          .normalise_name = bert_normalise,
          .is_other_heads = bert_is_other_heads,
          .deciding_keys = bert_keys_that_decide,
          .keys = {"attention_probs_dropout_prob",
                   "classifier_dropout",
                   "directionality",
                   "hidden_act",
                   "hidden_dropout_prob",
                   "hidden_size",
                   "initializer_range",
                   "intermediate_size",
                   "layer_norm_eps",
                   "max_position_embeddings",
                   "num_attention_heads",
                   "num_hidden_layers",
                   "pooler_fc_size",
                   "pooler_num_attention_heads",
                   "pooler_num_fc_layers",
                   "pooler_size_per_head",
                   "pooler_type",
                   "position_embedding_type",
                   "type_vocab_size",
                   "vocab_size"}};
}

}  // namespace gantry::models
