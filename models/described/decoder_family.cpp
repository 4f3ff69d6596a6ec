#include "gantry/models/described/decoder_family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/models/described/keys_of_family.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
using nlohmann::json;

json small_keys() {
  return {{"vocab_size", 256},        {"hidden_size", 64},
          {"intermediate_size", 176}, {"num_hidden_layers", 4},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"head_dim", 16},           {"max_position_embeddings", 256}};
}

const std::vector<DecoderFamily>& decoder_families() {
  static const std::vector<DecoderFamily> families = {
      bloom_family(),     cohere_family(),  cohere2_family(),     deepseek_v3_family(), falcon_family(),
      gemma_family(),     gemma2_family(),  gemma3_text_family(), glm4_family(),        gpt2_family(),
      gpt_neox_family(),  gpt_oss_family(), gptj_family(),        granite_family(),     llama_family(),
      mistral_family(),   mixtral_family(), olmo_family(),        olmo2_family(),       olmo3_family(),
      opt_family(),       phi3_family(),    qwen2_family(),       qwen2_moe_family(),   qwen3_family(),
      qwen3_moe_family(), smollm3_family(), stablelm_family(),    starcoder2_family()};
  return families;
}

DecoderSpec decoder_spec(const std::string& family, const json& keys) {
  std::vector<std::string> names;
  for (const DecoderFamily& known : decoder_families()) {
    if (known.model_type == family) return decoder_spec(known, keys);
    names.push_back(known.model_type);
  }
  throw ConfigError({"model family", "'" + family + "' is not a described decoder",
                     fmt::format("one of {}", fmt::join(names, ", ")), ""});
}

DecoderSpec decoder_spec(const DecoderFamily& family, const json& keys) {
  DecoderSpec spec = read_keys(keys, family.model_type, with_shared_keys(family.read));
  spec.family = family.model_type;
  return spec;
}

}  // namespace gantry::models
