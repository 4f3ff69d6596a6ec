#include "gantry/models/model_family.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/models/bert_family.h"
#include "gantry/models/gpt2_family.h"
#include "gantry/models/llama_family.h"

namespace gantry::models {
namespace {

// Of any model, and without a meaning here.
const std::vector<std::string> kCommonKeys = {"_name_or_path",
                                              "add_cross_attention",
                                              "architectures",
                                              "attn_implementation",
                                              "auto_map",
                                              "bos_token_id",
                                              "chunk_size_feed_forward",
                                              "cross_attention_hidden_size",
                                              "decoder_start_token_id",
                                              "dtype",
                                              "eos_token_id",
                                              "finetuning_task",
                                              "gradient_checkpointing",
                                              "id2label",
                                              "is_decoder",
                                              "is_encoder_decoder",
                                              "label2id",
                                              "model_type",
                                              "num_labels",
                                              "output_attentions",
                                              "output_hidden_states",
                                              "pad_token_id",
                                              "prefix",
                                              "problem_type",
                                              "pruned_heads",
                                              "return_dict",
                                              "sep_token_id",
                                              "task_specific_params",
                                              "tie_encoder_decoder",
                                              "tie_word_embeddings",
                                              "tokenizer_class",
                                              "torch_dtype",
                                              "torchscript",
                                              "transformers_version",
                                              "use_bfloat16",
                                              "use_cache"};

}  // namespace

void refuse_unknown_keys(const ModelFamily& family, const nlohmann::json& config, const nlohmann::json& file) {
  if (family.keys.empty() || !config.is_object()) return;
  std::vector<std::string> known = family.keys;
  known.insert(known.end(), kCommonKeys.begin(), kCommonKeys.end());
  for (const auto& [key, value] : config.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end() || file.contains(key)) continue;
    const std::string near = nearest_name(key, known);
    throw ConfigError({"model.config." + key, "is no key of " + family.model_type,
                       "a key of Hugging Face's config.json for " + family.model_type,
                       near.empty() ? "take it out" : "did you mean '" + near + "'?"});
  }
}

nlohmann::json deciding_keys(const ModelFamily& family, const nlohmann::json& config) {
  if (family.deciding_keys) return family.deciding_keys(config);
  const nlohmann::json all = family.hugging_face_config ? family.hugging_face_config(config) : config;
  nlohmann::json deciding = nlohmann::json::object();
  for (const auto& [key, value] : all.items()) {
    const auto speaks_of = [&name = key](const char* word) { return name.find(word) != std::string::npos; };
    if (!speaks_of("drop") && !speaks_of("initializer") && !speaks_of("token_id") && !speaks_of("dtype"))
      deciding[key] = value;
  }
  return deciding;
}

Registry<ModelFamily>& families() {
  struct Filled : Registry<ModelFamily> {
    Filled() : Registry("model family") {
      add("gpt2", gpt2_family());
      add("bert", bert_family());
      add("llama", llama_family());
    }
  };
  static Filled registry;
  return registry;
}

std::string family_of(const nlohmann::json& config) {
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return "";
  for (const auto& name : families().names())
    if (families().at(name).model_type == type->get<std::string>()) return name;
  return "";
}

}  // namespace gantry::models
