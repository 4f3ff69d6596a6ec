#include "gantry/models/bert_family.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/encoder_configs.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/keys_of_family.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

using nlohmann::json;

constexpr const char* kWordTable = "embeddings.word_embeddings.weight";

// What the families differ in, except their modules.
struct BertNames {
  std::string model_type;
  std::string prefix;  // of the names in files of models with a head: "bert."
  std::string stem;    // of the architectures' names
  BertConfig (*read)(ConfigReader& reader);
  // Of the masked language model's head in files: its layer, its norm, its decoder and the bias that the decoder ties.
  std::string dense, norm, decoder, bias;
  // Of the classifier of sequences: the layer behind the first token, and the one that gives the logits.
  std::string pooler, classifier;
};

const BertNames& bert_names() {
  static const BertNames names{.model_type = "bert",
                               .prefix = "bert.",
                               .stem = "Bert",
                               .read = read_bert,
                               .dense = "cls.predictions.transform.dense",
                               .norm = "cls.predictions.transform.LayerNorm",
                               .decoder = "cls.predictions.decoder",
                               .bias = "cls.predictions.bias",
                               .pooler = "bert.pooler.dense",
                               .classifier = "classifier"};
  return names;
}

const BertNames& roberta_names() {
  static const BertNames names{.model_type = "roberta",
                               .prefix = "roberta.",
                               .stem = "Roberta",
                               .read = read_roberta,
                               .dense = "lm_head.dense",
                               .norm = "lm_head.layer_norm",
                               .decoder = "lm_head.decoder",
                               .bias = "lm_head.bias",
                               .pooler = "classifier.dense",
                               .classifier = "classifier.out_proj"};
  return names;
}

const BertNames& xlm_roberta_names() {
  static const BertNames names = [] {
    BertNames names = roberta_names();
    names.model_type = "xlm-roberta";
    names.stem = "XLMRoberta";
    names.read = read_xlm_roberta;
    return names;
  }();
  return names;
}

bool is_classifier(BertHead head) {
  return head == BertHead::kSequenceClassification || head == BertHead::kTokenClassification;
}

BertConfig config_of(const BertNames& family, const json& keys) {
  return read_keys(keys, family.model_type, with_shared_keys(family.read));
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
  void prefer_last(const std::string& preferred, const std::string& other) {
    names_.back().preferred = preferred;
    names_.back().other_names = {other};
  }
  std::vector<TensorName> take() { return std::move(names_); }

 private:
  std::vector<TensorName> names_;
};

// Of the masked language model.
void add_predictions(NameList& names, const BertNames& family, bool tied) {
  names.add_both("cls.dense", family.dense, true);
  names.add_both("cls.LayerNorm", family.norm, true);
  if (!tied) names.add("cls.decoder.weight", family.decoder + ".weight", true);
  // transformers ties the decoder's bias to another parameter, and computes with the decoder's if they differ.
  names.add("cls.decoder.bias", tied ? family.bias : family.decoder + ".bias", true);
  names.prefer_last(family.decoder + ".bias", family.bias);
  // An untied model of transformers still has the parameter, and does not use it.
  if (!tied) names.copy_last(family.bias);
}

std::vector<TiedTensor> bert_tied_tensors(const BertNames& family, const json& keys) {
  const BertConfig config = config_of(family, keys);
  if (config.head != BertHead::kMaskedLm || !config.tie_word_embeddings) return {};
  return {{family.prefix + kWordTable}, {family.decoder + ".weight", {{"tie_word_embeddings", false}}}};
}

std::vector<TensorName> bert_tensor_names(const BertNames& family, const json& keys) {
  const BertConfig config = config_of(family, keys);
  const std::string prefix = config.head == BertHead::kNone ? "" : family.prefix;
  NameList names;
  names.add(kWordTable, prefix + kWordTable);
  if (config.head == BertHead::kMaskedLm && config.tie_word_embeddings)
    names.prefer_last("", family.decoder + ".weight");
  for (const char* part : {"position_embeddings", "token_type_embeddings"})
    names.add(fmt::format("embeddings.{}.weight", part), fmt::format("{}embeddings.{}.weight", prefix, part));
  names.add_both("embeddings.LayerNorm", prefix + "embeddings.LayerNorm");
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    for (const auto& [ours, theirs] : kLayerNames)
      names.add_both(fmt::format("layers.{}.{}", layer, ours),
                     fmt::format("{}encoder.layer.{}.{}", prefix, layer, theirs));
  if (config.head == BertHead::kNone) names.add_both("pooler", "pooler.dense", true);
  if (config.head == BertHead::kSequenceClassification) names.add_both("pooler", family.pooler, true);
  if (config.head == BertHead::kMaskedLm) add_predictions(names, family, config.tie_word_embeddings);
  if (config.head == BertHead::kSequenceClassification) names.add_both("classifier", family.classifier, true);
  if (config.head == BertHead::kMultipleChoice) names.add_both("pooler", prefix + "pooler.dense", true);
  if (config.head == BertHead::kTokenClassification || config.head == BertHead::kMultipleChoice)
    names.add_both("classifier", "classifier", true);
  if (config.head == BertHead::kQuestionAnswering) names.add_both("qa_outputs", "qa_outputs", true);
  return names.take();
}

// Older files say gamma and beta, and carry buffers; the prefix depends on the head that was saved.
std::string bert_normalise(const BertNames& family, const json& keys, const std::string& file_name) {
  std::string name = file_name;
  if (name.ends_with(".gamma")) name = name.substr(0, name.size() - 5) + "weight";
  if (name.ends_with(".beta")) name = name.substr(0, name.size() - 4) + "bias";
  if (name.ends_with("embeddings.position_ids") || name.starts_with("cls.seq_relationship.")) return "";
  const BertConfig config = config_of(family, keys);
  const bool body = name.find("embeddings.") != std::string::npos || name.find("encoder.") != std::string::npos ||
                    name.find("pooler.") != std::string::npos;
  const bool prefixed = name.starts_with(family.prefix);
  if (config.head == BertHead::kNone && prefixed) return name.substr(family.prefix.size());
  return config.head != BertHead::kNone && body && !prefixed ? family.prefix + name : name;
}

// What another head than this model's left in the file.
bool bert_is_other_heads(const BertNames& family, const std::string& name) {
  const std::string predictions = family.bias.substr(0, family.bias.find('.') + 1);
  for (const std::string& part : {predictions, std::string("classifier."), std::string("qa_outputs."),
                                  std::string("pooler."), family.prefix + "pooler."})
    if (name.starts_with(part)) return true;
  return false;
}

std::string task_of(const BertConfig& config) {
  if (config.head == BertHead::kNone) return "none";
  if (config.head == BertHead::kQuestionAnswering) return "spans";
  return config.head == BertHead::kMaskedLm ? "tokens" : "classes";
}

json bert_hugging_face_config(const BertNames& family, const json& keys) {
  const BertConfig config = config_of(family, keys);
  json full = keys;
  full["model_type"] = family.model_type;
  full["architectures"] = {bert_architecture(keys, family.stem)};
  full["vocab_size"] = config.vocab_size;
  full["hidden_size"] = config.hidden_size;
  full["num_hidden_layers"] = config.num_hidden_layers;
  full["num_attention_heads"] = config.num_attention_heads;
  full["intermediate_size"] = config.intermediate_size;
  full["max_position_embeddings"] = config.max_position_embeddings;
  full["type_vocab_size"] = config.type_vocab_size;
  full["pad_token_id"] = config.pad_token_id ? json(*config.pad_token_id) : json(nullptr);
  full["hidden_act"] = config.hidden_act;
  full["hidden_dropout_prob"] = config.hidden_dropout_prob;
  full["attention_probs_dropout_prob"] = config.attention_probs_dropout_prob;
  full["layer_norm_eps"] = config.layer_norm_eps;
  full["initializer_range"] = config.initializer_range;
  if (has_key(keys, "tie_word_embeddings")) full["tie_word_embeddings"] = config.tie_word_embeddings;
  if (is_classifier(config.head)) fill_labels(full, config.num_labels);
  return full;
}

json bert_keys_that_decide(const BertNames& family, const json& keys) {
  json deciding =
      keys_of(bert_hugging_face_config(family, keys),
              {"architectures", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
               "intermediate_size", "max_position_embeddings", "type_vocab_size", "hidden_act", "layer_norm_eps"});
  const BertConfig config = config_of(family, keys);
  deciding["tie_word_embeddings"] = config.tie_word_embeddings;
  if (is_classifier(config.head)) deciding["num_labels"] = config.num_labels;
  // Positions count from its row.
  if (config.is_roberta()) deciding["pad_token_id"] = *config.pad_token_id;
  return deciding;
}

ModelFamily family_of_names(const BertNames& family) {
  return {
      .build = [family](const json& keys) -> std::shared_ptr<torch::nn::Module> {
        return std::make_shared<BertImpl>(config_of(family, keys));
      },
      .tensor_names = [family](const json& keys) { return bert_tensor_names(family, keys); },
      .hugging_face_config = [family](const json& keys) { return bert_hugging_face_config(family, keys); },
      .model_type = family.model_type,
      .architectures = {family.stem + "ForMaskedLM"},
      .vocabulary_size = [family](const json& keys) { return config_of(family, keys).vocab_size; },
      .context_length = [family](const json& keys) { return config_of(family, keys).longest(); },
      .task = [family](const json& keys) { return task_of(config_of(family, keys)); },
      .problem_type = [family](const json& keys) -> std::string {
        const BertConfig config = config_of(family, keys);
        if (config.head != BertHead::kSequenceClassification) return "single_label_classification";
        return problem_type_of(keys, config.num_labels);
      },
      .normalise_name = [family](const json& keys,
                                 const std::string& name) { return bert_normalise(family, keys, name); },
      .tied_tensors = [family](const json& keys) { return bert_tied_tensors(family, keys); },
      .is_ignored_tensor = [family](const json&, const std::string& name) { return bert_is_other_heads(family, name); },
      .config_fingerprint = [family](const json& keys) { return bert_keys_that_decide(family, keys); },
      .check = [family](const json& keys) { return check_keys(*find_family_reader(family.model_type), keys); },
      .is_bidirectional = true};
}

}  // namespace

BertConfig bert_config(const json& keys) { return config_of(bert_names(), keys); }
ModelFamily bert_family() { return family_of_names(bert_names()); }
ModelFamily roberta_family() { return family_of_names(roberta_names()); }
ModelFamily xlm_roberta_family() { return family_of_names(xlm_roberta_names()); }

}  // namespace gantry::models
