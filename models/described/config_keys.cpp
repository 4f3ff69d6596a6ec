#include "gantry/models/described/config_keys.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"

namespace gantry::models {

using nlohmann::json;

const std::vector<std::string>& common_keys() {
  static const std::vector<std::string> keys = {"_attn_implementation_autoset",
                                                "_name_or_path",
                                                "add_cross_attention",
                                                "architectures",
                                                "attn_implementation",
                                                "auto_map",
                                                "bad_words_ids",
                                                "begin_suppress_tokens",
                                                "bos_token_id",
                                                "chunk_size_feed_forward",
                                                "cross_attention_hidden_size",
                                                "decoder_start_token_id",
                                                "diversity_penalty",
                                                "do_sample",
                                                "dtype",
                                                "early_stopping",
                                                "encoder_no_repeat_ngram_size",
                                                "eos_token_id",
                                                "exponential_decay_length_penalty",
                                                "finetuning_task",
                                                "forced_bos_token_id",
                                                "forced_eos_token_id",
                                                "gradient_checkpointing",
                                                "id2label",
                                                "is_decoder",
                                                "is_encoder_decoder",
                                                "label2id",
                                                "length_penalty",
                                                "max_length",
                                                "min_length",
                                                "model_type",
                                                "no_repeat_ngram_size",
                                                "num_beam_groups",
                                                "num_beams",
                                                "num_labels",
                                                "num_return_sequences",
                                                "output_attentions",
                                                "output_hidden_states",
                                                "output_scores",
                                                "pad_token_id",
                                                "prefix",
                                                "problem_type",
                                                "pruned_heads",
                                                "remove_invalid_values",
                                                "repetition_penalty",
                                                "return_dict",
                                                "return_dict_in_generate",
                                                "sep_token_id",
                                                "suppress_tokens",
                                                "task_specific_params",
                                                "temperature",
                                                "tf_legacy_loss",
                                                "tie_encoder_decoder",
                                                "tie_word_embeddings",
                                                "tokenizer_class",
                                                "top_k",
                                                "top_p",
                                                "torch_dtype",
                                                "torchscript",
                                                "transformers_version",
                                                "typical_p",
                                                "use_bfloat16",
                                                "use_cache"};
  return keys;
}

void refuse_key(const std::string& key, const json& value, const std::string& expected) {
  throw ConfigError({"model.config." + key, "the value is " + value.dump(), expected, "check the model's config.json"});
}

void require_object(const json& config, const std::string& family) {
  if (!config.is_object())
    throw ConfigError(
        {"model.config", "the value is " + config.dump(), "a mapping with Hugging Face's keys for " + family, ""});
}

bool has_key(const json& config, const std::string& key) { return config.contains(key) && !config[key].is_null(); }

std::int64_t size_key(const json& config, const std::string& key, std::int64_t missing, std::int64_t least) {
  if (!has_key(config, key)) return missing;
  const json& value = config[key];
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (!value.is_number_integer() || value.get<double>() < static_cast<double>(least) ||
      value.get<double>() > static_cast<double>(kMost))
    refuse_key(key, value, fmt::format("a whole number from {}", least));
  return value.get<std::int64_t>();
}

double number_key(const json& config, const std::string& key, double missing, double least, double below) {
  if (!has_key(config, key)) return missing;
  const json& value = config[key];
  if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() < below))
    refuse_key(key, value, fmt::format("a number from {} to below {}", least, below));
  return value.get<double>();
}

bool flag_key(const json& config, const std::string& key, bool missing) {
  if (!has_key(config, key)) return missing;
  if (!config[key].is_boolean()) refuse_key(key, config[key], "true or false");
  return config[key].get<bool>();
}

std::string choice_key(const json& config, const std::string& key, const std::string& missing,
                       const std::vector<std::string>& choices) {
  if (!has_key(config, key)) return missing;
  const json& value = config[key];
  if (!value.is_string() || std::find(choices.begin(), choices.end(), value.get<std::string>()) == choices.end())
    refuse_key(key, value, fmt::format("one of {}", fmt::join(choices, ", ")));
  return value.get<std::string>();
}

json keys_of(const json& config, const std::vector<std::string>& names) {
  json keys = json::object();
  for (const auto& name : names) keys[name] = has_key(config, name) ? config[name] : json(nullptr);
  return keys;
}

std::int64_t label_count(const json& config) {
  const std::int64_t said = size_key(config, "num_labels", 2);
  if (!has_key(config, "id2label")) return said;
  const json& names = config["id2label"];
  if (!names.is_object()) refuse_key("id2label", names, "a mapping");
  if (names.empty()) return said;
  const auto named = static_cast<std::int64_t>(names.size());
  if (has_key(config, "num_labels") && said != named)
    refuse_key("num_labels", said, fmt::format("the {} labels of id2label", named));
  return named;
}

void fill_labels(json& config, std::int64_t count) {
  if (has_key(config, "id2label")) return;
  for (std::int64_t label = 0; label < count; ++label)
    config["id2label"][std::to_string(label)] = fmt::format("LABEL_{}", label);
}

void only_value(const json& config, const std::string& key, const json& value) {
  if (has_key(config, key) && config[key] != value) refuse_key(key, config[key], value.dump());
}

}  // namespace gantry::models
