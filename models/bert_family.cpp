#include "gantry/models/bert_family.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/encoder_configs.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/keys_of_family.h"
#include "gantry/models/described/sentence_modules.h"
#include "gantry/models/encoder_names.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

using nlohmann::json;

constexpr const char* kWordTable = "embeddings.word_embeddings.weight";

// The differences between the families, except their modules.
struct BertNames {
  std::string model_type;
  std::string prefix;  // "bert.", before the names in files of models with a head
  std::string stem;    // "Bert", the beginning of the architectures' names
  BertConfig (*read)(ConfigReader& reader);
  // In files, without the prefix: the norm of the embedding, and the list of layers.
  std::string embedding_norm = "embeddings.LayerNorm", layers = "encoder.layer";
  // {registered path within a layer, path in files}
  std::vector<std::pair<std::string, std::string>> layer = {
      {"self.query", "attention.self.query"},
      {"self.key", "attention.self.key"},
      {"self.value", "attention.self.value"},
      {"attention_output.dense", "attention.output.dense"},
      {"attention_output.LayerNorm", "attention.output.LayerNorm"},
      {"intermediate", "intermediate.dense"},
      {"output.dense", "output.dense"},
      {"output.LayerNorm", "output.LayerNorm"}};
  // Names of the masked language model's head in files: its layer, its norm, its decoder, and the bias to
  // which the decoder's bias is tied.
  std::string dense, norm, decoder, bias;
  // Names of the sequence classifier: the layer on the first token, and the layer that computes the logits.
  std::string pooler, classifier;
  std::string choice_pooler = {};  // `pooler` for multiple choice
  // The beginnings of the names of heads, and parts of the names of all other tensors.
  std::vector<std::string> heads, body = {"embeddings.", "encoder.", "pooler."};
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
                               .classifier = "classifier",
                               .choice_pooler = "bert.pooler.dense",
                               .heads = {"cls.", "classifier.", "qa_outputs.", "pooler.", "bert.pooler."}};
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
                               .classifier = "classifier.out_proj",
                               .choice_pooler = "roberta.pooler.dense",
                               .heads = {"lm_head.", "classifier.", "qa_outputs.", "pooler.", "roberta.pooler."}};
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

const BertNames& distilbert_names() {
  static const BertNames names{.model_type = "distilbert",
                               .prefix = "distilbert.",
                               .stem = "DistilBert",
                               .read = read_distilbert,
                               .layers = "transformer.layer",
                               .layer = {{"self.query", "attention.q_lin"},
                                         {"self.key", "attention.k_lin"},
                                         {"self.value", "attention.v_lin"},
                                         {"attention_output.dense", "attention.out_lin"},
                                         {"attention_output.LayerNorm", "sa_layer_norm"},
                                         {"intermediate", "ffn.lin1"},
                                         {"output.dense", "ffn.lin2"},
                                         {"output.LayerNorm", "output_layer_norm"}},
                               .dense = "vocab_transform",
                               .norm = "vocab_layer_norm",
                               .decoder = "vocab_projector",
                               .bias = "vocab_projector.bias",
                               .pooler = "pre_classifier",
                               .classifier = "classifier",
                               .choice_pooler = "pre_classifier",
                               .heads = {"vocab_", "pre_classifier.", "classifier.", "qa_outputs."},
                               .body = {"embeddings.", "transformer."}};
  return names;
}

const BertNames& nomic_bert_names() {
  static const BertNames names{.model_type = "nomic_bert",
                               .prefix = "nomic_bert.",
                               .stem = "NomicBert",
                               .read = read_nomic_bert,
                               .embedding_norm = "emb_ln",
                               .layers = "encoder.layers",
                               .layer = {{"self.Wqkv", "attn.Wqkv"},
                                         {"attention_output.dense", "attn.out_proj"},
                                         {"attention_output.LayerNorm", "norm1"},
                                         {"intermediate", "mlp.fc11"},
                                         {"gate", "mlp.fc12"},
                                         {"output.dense", "mlp.fc2"},
                                         {"output.LayerNorm", "norm2"}},
                               .dense = "cls.predictions.transform.dense",
                               .norm = "cls.predictions.transform.layer_norm",
                               .decoder = "cls.predictions.decoder",
                               .bias = "cls.predictions.bias",
                               .pooler = "nomic_bert.pooler.dense",
                               .classifier = "classifier",
                               .heads = {"cls.", "classifier.", "pooler.", "nomic_bert.pooler."},
                               .body = {"embeddings.", "encoder.", "pooler.", "emb_ln."}};
  return names;
}

const BertNames& electra_names() {
  static const BertNames names{
      .model_type = "electra",
      .prefix = "electra.",
      .stem = "Electra",
      .read = read_electra,
      .dense = "generator_predictions.dense",
      .norm = "generator_predictions.LayerNorm",
      .decoder = "generator_lm_head",
      .bias = "generator_lm_head.bias",
      .pooler = "classifier.dense",
      .classifier = "classifier.out_proj",
      .choice_pooler = "sequence_summary.summary",
      .heads = {"generator_", "discriminator_predictions.", "classifier.", "qa_outputs.", "sequence_summary."},
      .body = {"embeddings.", "embeddings_project.", "encoder."}};
  return names;
}

BertConfig config_of(const BertNames& family, const json& keys) {
  return read_keys(keys, family.model_type, with_shared_keys(family.read));
}

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

// Adds the names of the masked language model's head.
void add_predictions(NameList& names, const BertNames& family, bool tied) {
  names.add_both("cls.dense", family.dense, true);
  names.add_both("cls.LayerNorm", family.norm, true);
  if (!tied) names.add("cls.decoder.weight", family.decoder + ".weight", true);
  // transformers ties the decoder's bias to another parameter, and computes with the decoder's if they differ.
  names.add("cls.decoder.bias", tied ? family.bias : family.decoder + ".bias", true);
  if (family.bias == family.decoder + ".bias") return;
  names.prefer_last(family.decoder + ".bias", family.bias);
  // An untied model of transformers still has the parameter, and does not use it.
  if (!tied) names.copy_last(family.bias);
}

std::vector<TiedTensor> bert_tied_tensors(const BertNames& family, const json& keys) {
  const BertConfig config = config_of(family, keys);
  if (!is_tied_head(config)) return {};
  return {{family.prefix + kWordTable}, {family.decoder + ".weight", {{"tie_word_embeddings", false}}}};
}

std::vector<TensorName> bert_tensor_names(const BertNames& family, const json& keys) {
  const BertConfig config = config_of(family, keys);
  const std::string prefix = config.head == BertHead::kNone ? "" : family.prefix;
  NameList names;
  names.add(kWordTable, prefix + kWordTable);
  if (is_tied_head(config)) names.prefer_last("", family.decoder + ".weight");
  const auto add_table = [&](const std::string& part) {
    names.add(fmt::format("embeddings.{}.weight", part), fmt::format("{}embeddings.{}.weight", prefix, part));
  };
  if (!config.rotary) add_table("position_embeddings");
  if (config.type_vocab_size > 0) add_table("token_type_embeddings");
  names.add_both("embeddings.LayerNorm", prefix + family.embedding_norm);
  if (config.embedding_width() != config.hidden_size)
    names.add_both("embeddings_project", prefix + "embeddings_project");
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    for (const auto& [ours, theirs] : family.layer) {
      const std::string at = fmt::format("{}{}.{}.{}", prefix, family.layers, layer, theirs);
      const bool has_bias = !config.fused || ours.ends_with("LayerNorm");
      names.add(fmt::format("layers.{}.{}.weight", layer, ours), at + ".weight");
      if (has_bias) names.add(fmt::format("layers.{}.{}.bias", layer, ours), at + ".bias");
    }
  if (config.head == BertHead::kNone && config.is_pooled_without_head) names.add_both("pooler", "pooler.dense", true);
  if (config.head == BertHead::kSequenceClassification) names.add_both("pooler", family.pooler, true);
  if (config.head == BertHead::kMaskedLm) add_predictions(names, family, config.tie_word_embeddings);
  if (config.head == BertHead::kSequenceClassification) names.add_both("classifier", family.classifier, true);
  if (config.head == BertHead::kMultipleChoice) names.add_both("pooler", family.choice_pooler, true);
  if (config.head == BertHead::kTokenClassification || config.head == BertHead::kMultipleChoice)
    names.add_both("classifier", "classifier", true);
  if (config.head == BertHead::kQuestionAnswering) names.add_both("qa_outputs", "qa_outputs", true);
  return names.take();
}

// Older files use the names gamma and beta, and contain buffers. The prefix depends on the head that was
// saved.
std::string bert_normalise(const BertNames& family, const json& keys, const std::string& file_name) {
  std::string name = file_name;
  if (name.ends_with(".gamma")) name = name.substr(0, name.size() - 5) + "weight";
  if (name.ends_with(".beta")) name = name.substr(0, name.size() - 4) + "bias";
  if (name.ends_with("embeddings.position_ids") || name.starts_with("cls.seq_relationship.")) return "";
  const BertConfig config = config_of(family, keys);
  // Older files of NomicBERT have BERT's prefix.
  if (family.model_type == "nomic_bert" && name.starts_with("bert.")) name = name.substr(5);
  const bool body = std::any_of(family.body.begin(), family.body.end(),
                                [&](const std::string& part) { return name.find(part) != std::string::npos; });
  const bool prefixed = name.starts_with(family.prefix);
  if (config.head == BertHead::kNone && prefixed) return name.substr(family.prefix.size());
  return config.head != BertHead::kNone && body && !prefixed ? family.prefix + name : name;
}

// True for a tensor of a head in the file that this model does not have.
bool bert_is_other_heads(const BertNames& family, const std::string& name) {
  return std::any_of(family.heads.begin(), family.heads.end(),
                     [&](const std::string& part) { return name.starts_with(part); });
}

// True for the families whose keys are BERT's.
bool has_bert_keys(const BertNames& family) {
  return family.model_type != "distilbert" && family.model_type != "nomic_bert" && family.model_type != "electra";
}

// The results of the next two functions for the other families.
json keyed_hugging_face_config(const BertNames& family, const json& keys) {
  const BertConfig config = config_of(family, keys);
  json full =
      full_config_of(keys, family.model_type, bert_architecture(keys, family.stem), with_shared_keys(family.read));
  full["pad_token_id"] = config.pad_token_id ? json(*config.pad_token_id) : json(nullptr);
  if (is_classifier(config.head)) fill_labels(full, config.num_labels);
  // transformers does not read the base of published files.
  if (config.rotary && !has_key(full, "rope_parameters") && !has_key(full, "rope_scaling"))
    full["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", config.rotary->theta}};
  return full;
}

json keyed_keys_that_decide(const BertNames& family, const json& keys) {
  json deciding = deciding_keys_of(keys, family.model_type, with_shared_keys(family.read));
  const BertConfig config = config_of(family, keys);
  if (is_classifier(config.head)) deciding["num_labels"] = config.num_labels;
  return deciding;
}

json bert_hugging_face_config(const BertNames& family, const json& keys) {
  if (!has_bert_keys(family)) return keyed_hugging_face_config(family, keys);
  const BertConfig config = config_of(family, keys);
  json full = keys;
  full.erase("quantization_config");  // exported weights are decoded
  leave_out_sentences(full);
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
  if (!has_bert_keys(family)) return keyed_keys_that_decide(family, keys);
  json deciding =
      keys_of(bert_hugging_face_config(family, keys),
              {"architectures", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
               "intermediate_size", "max_position_embeddings", "type_vocab_size", "hidden_act", "layer_norm_eps"});
  const BertConfig config = config_of(family, keys);
  deciding["tie_word_embeddings"] = config.tie_word_embeddings;
  if (is_classifier(config.head)) deciding["num_labels"] = config.num_labels;
  if (config.sentence)
    deciding.update(
        {{"sentence_pooling", config.sentence->modes}, {"sentence_normalize", config.sentence->normalizes}});
  // Positions count from the row of this token.
  if (config.is_roberta()) deciding["pad_token_id"] = *config.pad_token_id;
  return deciding;
}

ModelFamily family_of_names(const BertNames& family) {
  ModelFamily made{
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
      .problem_type = [family](const json& keys) { return problem_type_of_head(keys, config_of(family, keys)); },
      .normalise_name = [family](const json& keys,
                                 const std::string& name) { return bert_normalise(family, keys, name); },
      .tied_tensors = [family](const json& keys) { return bert_tied_tensors(family, keys); },
      .is_ignored_tensor = [family](const json&, const std::string& name) { return bert_is_other_heads(family, name); },
      .config_fingerprint = [family](const json& keys) { return bert_keys_that_decide(family, keys); },
      .check = [family](const json& keys) { return check_keys(*find_family_reader(family.model_type), keys); },
      .is_bidirectional = true};
  if (family.model_type == "distilbert") std::erase(made.inputs, std::string("token_type_ids"));
  return made;
}

}  // namespace

BertConfig bert_config(const json& keys) { return config_of(bert_names(), keys); }
ModelFamily bert_family() { return family_of_names(bert_names()); }
ModelFamily roberta_family() { return family_of_names(roberta_names()); }
ModelFamily distilbert_family() { return family_of_names(distilbert_names()); }
ModelFamily nomic_bert_family() { return family_of_names(nomic_bert_names()); }
ModelFamily electra_family() { return family_of_names(electra_names()); }
ModelFamily xlm_roberta_family() { return family_of_names(xlm_roberta_names()); }

}  // namespace gantry::models
