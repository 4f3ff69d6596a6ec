#include "gantry/models/modern_bert_family.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/keys_of_family.h"
#include "gantry/models/encoder_names.h"
#include "gantry/models/modern_bert.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

using nlohmann::json;

constexpr const char *kModernBert = "modernbert", *kModernStem = "ModernBert", *kModernPrefix = "model.";
constexpr const char *kModernTable = "embeddings.tok_embeddings.weight", *kModernDecoder = "decoder.weight";

const auto kReadModernBert = with_shared_keys(read_modern_bert);

ModernBertConfig modern_bert_config(const json& keys) { return read_keys(keys, kModernBert, kReadModernBert); }

class ModernNames {
 public:
  explicit ModernNames(const ModernBertConfig& config)
      : config_(config), prefix_(config.bert.head == BertHead::kNone ? "" : kModernPrefix) {}

  std::vector<TensorName> all() {
    add(kModernTable);
    if (is_tied_head(config_.bert)) names_.back().other_names = {kModernDecoder};
    add_norm("embeddings.norm");
    for (std::int64_t layer = 0; layer < config_.bert.num_hidden_layers; ++layer) add_layer(layer);
    add_norm("final_norm");
    const auto body = names_.size();
    add_head();
    for (auto name = names_.begin() + static_cast<std::ptrdiff_t>(body); name != names_.end(); ++name) {
      name->hugging_face = name->name;
      name->new_allowed = true;
    }
    return std::move(names_);
  }

 private:
  void add(const std::string& name) { names_.push_back({name, prefix_ + name}); }
  void add_norm(const std::string& path) { add_linear(path, config_.norm_bias); }
  void add_linear(const std::string& path, bool bias) {
    add(path + ".weight");
    if (bias) add(path + ".bias");
  }
  void add_layer(std::int64_t layer) {
    const std::string at = fmt::format("layers.{}.", layer);
    if (layer > 0) add_norm(at + "attn_norm");
    for (const char* part : {"attn.Wqkv", "attn.Wo"}) add_linear(at + part, config_.attention_bias);
    add_norm(at + "mlp_norm");
    for (const char* part : {"mlp.Wi", "mlp.Wo"}) add_linear(at + part, config_.mlp_bias);
  }
  void add_head() {
    if (config_.bert.head == BertHead::kNone) return;
    add_linear("head.dense", config_.classifier_bias);
    add_norm("head.norm");
    if (config_.bert.head != BertHead::kMaskedLm) return add_linear("classifier", true);
    if (!config_.bert.tie_word_embeddings) add(kModernDecoder);
    if (config_.decoder_bias) add("decoder.bias");
  }

  const ModernBertConfig config_;
  const std::string prefix_;
  std::vector<TensorName> names_;
};

std::vector<TiedTensor> modern_tied_tensors(const json& keys) {
  if (!is_tied_head(modern_bert_config(keys).bert)) return {};
  return {{std::string(kModernPrefix) + kModernTable}, {kModernDecoder, {{"tie_word_embeddings", false}}}};
}

// Files of the bare model have no prefix.
std::string modern_normalise(const json& keys, const std::string& name) {
  const bool is_body =
      name.starts_with("embeddings.") || name.starts_with("layers.") || name.starts_with("final_norm.");
  const bool is_bare = modern_bert_config(keys).bert.head == BertHead::kNone;
  if (is_bare && name.starts_with(kModernPrefix)) return name.substr(std::string(kModernPrefix).size());
  return is_body && !is_bare ? kModernPrefix + name : name;
}

bool is_modern_head(const std::string& name) {
  return name.starts_with("head.") || name.starts_with("decoder.") || name.starts_with("classifier.");
}

// Token ids that the file does not have are null, because the defaults of transformers can be outside of a smaller
// vocabulary.
json modern_hugging_face_config(const json& keys) {
  const BertConfig config = modern_bert_config(keys).bert;
  json full = full_config_of(keys, kModernBert, bert_architecture(keys, kModernStem), kReadModernBert);
  full["pad_token_id"] = config.pad_token_id ? json(*config.pad_token_id) : json(nullptr);
  if (is_classifier(config.head)) fill_labels(full, config.num_labels);
  leave_out_tokens(full);
  return full;
}

json modern_keys_that_decide(const json& keys) {
  json deciding = deciding_keys_of(keys, kModernBert, kReadModernBert);
  const BertConfig config = modern_bert_config(keys).bert;
  if (is_classifier(config.head)) deciding["num_labels"] = config.num_labels;
  return deciding;
}

}  // namespace

ModelFamily modern_bert_family() {
  const auto config = [](const json& keys) { return modern_bert_config(keys).bert; };
  return {.build = [](const json& keys) -> std::shared_ptr<torch::nn::Module> {
            return std::make_shared<ModernBertImpl>(modern_bert_config(keys));
          },
          .tensor_names = [](const json& keys) { return ModernNames(modern_bert_config(keys)).all(); },
          .hugging_face_config = modern_hugging_face_config,
          .model_type = kModernBert,
          .architectures = {"ModernBertForMaskedLM"},
          .vocabulary_size = [config](const json& keys) { return config(keys).vocab_size; },
          .context_length = [config](const json& keys) { return config(keys).longest(); },
          .task = [config](const json& keys) { return task_of(config(keys)); },
          .problem_type = [config](const json& keys) { return problem_type_of_head(keys, config(keys)); },
          .normalise_name = modern_normalise,
          .tied_tensors = modern_tied_tensors,
          .is_ignored_tensor = [](const json&, const std::string& name) { return is_modern_head(name); },
          .config_fingerprint = modern_keys_that_decide,
          .check = [](const json& keys) { return check_keys(*find_family_reader(kModernBert), keys); },
          .is_bidirectional = true,
          .inputs = {"input_ids", "attention_mask", "position_ids", "document_ids"}};
}

}  // namespace gantry::models
