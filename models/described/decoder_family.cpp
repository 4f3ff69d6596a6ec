#include "gantry/models/described/decoder_family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/model_outline.h"
#include "gantry/models/described/sentence_modules.h"
#include "gantry/models/described/shared_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
using nlohmann::json;

namespace {

// transformers puts a bias-free projection on the last token, without the scales and caps of the language model's head.
DecoderSpec with_labels(DecoderSpec spec, ConfigReader& reader) {
  if (spec.mtp_loss > 0)
    refuse_key(kMtpFactor, spec.mtp_loss, "0, or no such key", "a model with a head for labels predicts no tokens");
  spec.labels = label_count(reader.keys());
  // Also in families whose embedding has no row of padding.
  spec.label_padding = read_padding(reader, spec.vocabulary, spec.padding);
  problem_type_of(reader.keys(), spec.labels);
  spec.names.head = "score";
  spec.tied = spec.head_bias = false;
  spec.logit_scale = 1;
  spec.logit_soft_cap = spec.router_loss = 0;
  reader.decides("num_labels", spec.labels);
  return spec;
}

// The model without its head, if modules.json describes a sentence embedding.
DecoderSpec with_sentence(DecoderSpec spec, ConfigReader& reader) {
  spec.sentence = read_sentence_modules(reader);
  if (!spec.sentence) return spec;
  if (spec.mtp_loss > 0)
    refuse_key(kMtpFactor, spec.mtp_loss, "0, or no such key", "the model of modules.json predicts no tokens");
  spec.tied = spec.head_bias = false;
  spec.router_loss = 0;
  return spec;
}

// True if a key of config.json may differ from the same key of the decoder's mapping: the two belong to different
// parts, or only initial weights and texts use them.
bool is_of_each_part(const std::string& key) {
  return key == "model_type" || key == "tie_word_embeddings" || key == "initializer_range" ||
         key.ends_with("_token_id");
}

// Checks keys of the decoder that config.json repeats outside of the decoder's mapping, and marks them as
// read.
void check_repeated(ConfigReader& reader, const ConfigReader& text) {
  for (const auto& key : text.known()) {
    if (!reader.has(key)) continue;
    const json &outside = reader.keys()[key], inside = text.values().value(key, json());
    if (!inside.is_null() && outside != inside && !is_of_each_part(key))
      refuse_key(key, outside, fmt::format("the value of {}.{}, which is {}", kTextConfig, key, inside.dump()),
                 "the decoder has its own keys");
    reader.ignore(key);
  }
}

DecoderSpec read_tower(const DecoderFamily& family, ConfigReader& reader) {
  if (has_labels(reader.keys()))
    refuse_key("architectures", reader.keys()["architectures"], family.architecture,
               "Gantry has no classification head for it");
  const TowerKeys& tower = *family.tower;
  const json nested = reader.mapping(kTextConfig);
  DecoderSpec spec;
  if (!reader.has(kTextConfig) && tower.may_be_flat) {
    spec = family.read(reader);
  } else {
    ConfigReader text(nested, choice_key(nested, "model_type", tower.text_types.front(), tower.text_types));
    read_shared_keys(text, false);
    spec = family.read(text);
    for (const auto& key : family.harmless) text.ignore(key);
    check_repeated(reader, text);
    reader.include(kTextConfig, text);
  }
  if (tower.text_tokens) spec.text_tokens = tower.text_tokens(reader.keys());
  if (family.read_vision && reader.flag(kImageEncoder, false)) spec.vision = family.read_vision(reader, spec);
  if (tower.is_causal_lm) {
    reader.ignore("tie_word_embeddings");
    return spec;
  }
  const bool tied = flag_key(nested, "tie_word_embeddings", tower.tied);
  spec.tied = reader.flag("tie_word_embeddings", tied);
  return spec;
}

}  // namespace

json small_keys() {
  return {{"vocab_size", 256},        {"hidden_size", 64},
          {"intermediate_size", 176}, {"num_hidden_layers", 4},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"head_dim", 16},           {"max_position_embeddings", 256}};
}

const std::vector<DecoderFamily>& decoder_families() {
  static const std::vector<DecoderFamily> families = {
      // clang-format off
      apertus_family(), bamba_family(), bloom_family(), codegen_family(), cohere_family(), cohere2_family(),
      deepseek_v2_family(), deepseek_v3_family(), dots1_family(), ernie4_5_family(), ernie4_5_moe_family(),
      exaone4_family(), falcon_family(), falcon_h1_family(), falcon_mamba_family(), gemma_family(),
      gemma2_family(), gemma3_family(), gemma3_text_family(), gemma3n_family(), gemma3n_text_family(), glm4_family(), glm4_moe_family(), glm4v_family(),
      gpt2_family(), gpt_bigcode_family(), gpt_neo_family(), gpt_neox_family(), gpt_oss_family(), gptj_family(),
      granite_family(), granitemoe_family(), granitemoehybrid_family(), helium_family(),
      hunyuan_v1_dense_family(), jamba_family(), kimi_k2_family(), kimi_linear_family(), lfm2_family(),
      llama_family(), llama4_family(), llama4_text_family(), llava_family(), mamba_family(), mamba2_family(),
      minimax_family(), minimax_m2_family(), mistral_family(), mistral3_family(), mixtral_family(),
      nemotron_family(), nemotron_h_family(), olmo_family(), olmo2_family(), olmo3_family(),
      olmo_hybrid_family(), olmoe_family(),
      opt_family(), phi_family(), phi3_family(), qwen2_family(), qwen2_5_vl_family(), qwen2_moe_family(),
      qwen2_vl_family(), qwen3_family(), qwen3_5_family(), qwen3_5_moe_family(), qwen3_5_moe_text_family(),
      qwen3_5_text_family(), qwen3_moe_family(), qwen3_next_family(), qwen3_vl_family(),
      recurrent_gemma_family(), seed_oss_family(), smollm3_family(), stablelm_family(), starcoder2_family()
      // clang-format on
  };
  return families;
}

bool has_labels(const json& keys) {
  return keys.is_object() && !has_key(keys, kSentenceModules) &&
         architecture_key(keys).ends_with("ForSequenceClassification");
}

DecoderSpec read_decoder(const DecoderFamily& family, ConfigReader& reader) {
  read_shared_keys(reader, false);
  DecoderSpec spec = family.tower ? read_tower(family, reader) : family.read(reader);
  spec.family = family.model_type;
  if (has_labels(reader.keys())) return with_labels(std::move(spec), reader);
  return family.tower ? spec : with_sentence(std::move(spec), reader);
}

DecoderSpec decoder_spec(const std::string& family, const json& keys) {
  std::vector<std::string> names;
  for (const DecoderFamily& known : decoder_families()) {
    if (known.model_type == family) return decoder_spec(known, keys);
    names.push_back(known.model_type);
  }
  if (outlines().contains(family)) return require_spec(outlines().at(family)(keys), family);
  throw ConfigError({"model.policy", "the family '" + family + "' is not known here, or is not a decoder",
                     fmt::format("one of {}, or a family of a library", fmt::join(names, ", ")),
                     "name the library of your own family under libraries"});
}

DecoderSpec decoder_spec(const DecoderFamily& family, const json& keys) {
  ConfigReader reader(keys, family.model_type);
  return read_decoder(family, reader);
}

}  // namespace gantry::models
