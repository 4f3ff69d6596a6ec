#include "gantry/models/described/config_keys.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/models/described/sentence_modules.h"

namespace gantry::models {

using nlohmann::json;

const std::vector<std::string>& common_keys() {
  static const std::vector<std::string> keys = {"_attn_implementation",
                                                "_attn_implementation_autoset",
                                                "_attn_implementation_internal",
                                                "_commit_hash",
                                                "_experts_implementation",
                                                "_experts_implementation_internal",
                                                "_name_or_path",
                                                "_num_labels",
                                                "architectures",
                                                "assistant_confidence_threshold",
                                                "attn_implementation",
                                                "auto_map",
                                                "bad_words_ids",
                                                "base_model_pp_plan",
                                                "base_model_tp_plan",
                                                "begin_suppress_tokens",
                                                "bos_token_id",
                                                "cache_config",
                                                "cache_implementation",
                                                "chunk_size_feed_forward",
                                                "compile_config",
                                                "constraints",
                                                "cross_attention_hidden_size",
                                                "custom_pipelines",
                                                "decoder",
                                                "decoder_start_token_id",
                                                "disable_compile",
                                                "diversity_penalty",
                                                "do_sample",
                                                "dola_layers",
                                                "dtype",
                                                "early_stopping",
                                                "encoder",
                                                "encoder_no_repeat_ngram_size",
                                                "encoder_repetition_penalty",
                                                "eos_token_id",
                                                "epsilon_cutoff",
                                                "eta_cutoff",
                                                "experts_implementation",
                                                "exponential_decay_length_penalty",
                                                "finetuning_task",
                                                "force_words_ids",
                                                "forced_bos_token_id",
                                                "forced_decoder_ids",
                                                "forced_eos_token_id",
                                                "generation_config",
                                                "gradient_checkpointing",
                                                "guidance_scale",
                                                "id2label",
                                                "is_assistant",
                                                "is_encoder_decoder",
                                                "label2id",
                                                "length_penalty",
                                                "low_memory",
                                                "max_length",
                                                "max_matching_ngram_size",
                                                "max_new_tokens",
                                                "max_time",
                                                "min_length",
                                                "min_new_tokens",
                                                "min_p",
                                                "model_type",
                                                "name_or_path",
                                                "no_repeat_ngram_size",
                                                "num_assistant_tokens",
                                                "num_assistant_tokens_schedule",
                                                "num_beam_groups",
                                                "num_beams",
                                                "num_labels",
                                                "num_return_sequences",
                                                "output_attentions",
                                                "output_hidden_states",
                                                "output_logits",
                                                "output_scores",
                                                "pad_token_id",
                                                "penalty_alpha",
                                                "prefill_chunk_size",
                                                "prefix",
                                                "problem_type",
                                                "prompt_lookup_num_tokens",
                                                "remove_invalid_values",
                                                "renormalize_logits",
                                                "repetition_penalty",
                                                "return_dict",
                                                "return_dict_in_generate",
                                                "return_legacy_cache",
                                                "sentence_modules",
                                                "sep_token_id",
                                                "sequence_bias",
                                                "stop_strings",
                                                "suppress_tokens",
                                                "task_specific_params",
                                                "temperature",
                                                "tf_legacy_loss",
                                                "tie_encoder_decoder",
                                                "tie_word_embeddings",
                                                "token_healing",
                                                "tokenizer_class",
                                                "top_h",
                                                "top_k",
                                                "top_p",
                                                "torch_dtype",
                                                "torchscript",
                                                "transformers.js_config",
                                                "transformers_version",
                                                "transformers_weights",
                                                "typical_p",
                                                "unk_token_id",
                                                "use_bfloat16",
                                                "use_cache",
                                                "use_return_dict",
                                                "watermarking_config"};
  return keys;
}

void refuse_key(const std::string& key, const json& value, const std::string& expected, const std::string& reason) {
  throw ConfigError({"model.config." + key, "the value is " + value.dump() + (reason.empty() ? "" : ", but " + reason),
                     expected, "check the model's config.json"});
}

void require_multiple_of_heads(const std::string& width_key, std::int64_t width, const std::string& heads_key,
                               std::int64_t heads) {
  if (width % heads != 0) refuse_key(width_key, width, fmt::format("a multiple of {} {}", heads_key, heads));
}

void override_keys(json& keys, const json& overrides) {
  json text = keys.value(kTextConfig, json());
  if (overrides.contains("architectures")) keys.erase(kSentenceModules);
  keys.update(overrides);
  if (!text.is_object() || !keys[kTextConfig].is_object()) return;
  text.update(keys[kTextConfig]);
  keys[kTextConfig] = std::move(text);
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

namespace {

// Some programs write booleans as "true" and "True".
json without_quotes(const json& value) {
  if (value == "true" || value == "True") return true;
  if (value == "false" || value == "False") return false;
  return value;
}

}  // namespace

bool flag_key(const json& config, const std::string& key, bool missing) {
  if (!has_key(config, key)) return missing;
  const json value = without_quotes(config[key]);
  if (!value.is_boolean()) refuse_key(key, config[key], "true or false");
  return value.get<bool>();
}

std::string choice_key(const json& config, const std::string& key, const std::string& missing,
                       const std::vector<std::string>& choices) {
  if (!has_key(config, key)) return missing;
  const json& value = config[key];
  if (!value.is_string() || std::find(choices.begin(), choices.end(), value.get<std::string>()) == choices.end())
    refuse_key(key, value, fmt::format("one of {}", fmt::join(choices, ", ")));
  return value.get<std::string>();
}

std::string architecture_key(const json& config) {
  if (!has_key(config, "architectures")) return "";
  const json& listed = config["architectures"];
  const json first = listed.is_array() && !listed.empty() ? listed.front() : listed;
  return first.is_string() ? first.get<std::string>() : "";
}

json keys_of(const json& config, const std::vector<std::string>& names) {
  json keys = json::object();
  for (const auto& name : names) keys[name] = has_key(config, name) ? config[name] : json(nullptr);
  return keys;
}

std::int64_t label_count(const json& config) {
  const std::int64_t said = size_key(config, "num_labels", 2);
  const char* key = has_key(config, "id2label") ? "id2label" : "label2id";
  if (!has_key(config, key)) return said;
  const json& names = config[key];
  if (!names.is_object()) refuse_key(key, names, "a mapping");
  if (names.empty()) return said;
  const auto named = static_cast<std::int64_t>(names.size());
  if (has_key(config, "num_labels") && said != named)
    refuse_key("num_labels", said, fmt::format("the {} labels of {}", named, key));
  return named;
}

std::string problem_type_of(const json& config, std::int64_t labels) {
  return choice_key(config, "problem_type", labels == 1 ? "regression" : "",
                    {"single_label_classification", "regression", "multi_label_classification"});
}

void fill_labels(json& config, std::int64_t count) {
  if (!has_key(config, "id2label") && has_key(config, "label2id")) {
    for (const auto& [name, label] : config["label2id"].items()) config["id2label"][label.dump()] = name;
  }
  if (!has_key(config, "id2label"))
    for (std::int64_t label = 0; label < count; ++label)
      config["id2label"][std::to_string(label)] = fmt::format("LABEL_{}", label);
  if (has_key(config, "label2id")) return;
  for (const auto& [label, name] : config["id2label"].items())
    if (name.is_string() && !label.empty() && label.find_first_not_of("0123456789") == std::string::npos)
      config["label2id"][name.get<std::string>()] = std::stoll(label);
}

void only_value(const json& config, const std::string& key, const json& value, const std::string& reason) {
  if (has_key(config, key) && config[key] != value && without_quotes(config[key]) != value)
    refuse_key(key, config[key], value.dump(), reason);
}

}  // namespace gantry::models
