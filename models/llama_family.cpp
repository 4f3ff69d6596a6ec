#include "gantry/models/llama_family.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/models/config_keys.h"
#include "gantry/nn/activation.h"

namespace gantry::models {
namespace {

using nlohmann::json;

nn::RotaryOptions rotary_options(const json& keys, std::int64_t positions) {
  nn::RotaryOptions options;
  options.theta = number_key(keys, "rope_theta", options.theta, 1, 1e12);
  json scaling = json::object();
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (has_key(keys, key)) scaling = keys[key];
  if (!scaling.is_object()) refuse_key("rope_parameters", scaling, "a mapping");
  options.theta = number_key(scaling, "rope_theta", options.theta, 1, 1e12);
  if (has_key(scaling, "type") && !has_key(scaling, "rope_type")) scaling["rope_type"] = scaling["type"];
  options.type = choice_key(scaling, "rope_type", options.type, {"default", "linear", "llama3"});
  options.factor = number_key(scaling, "factor", options.factor, 1, 1e6);
  options.low_frequency_factor = number_key(scaling, "low_freq_factor", options.low_frequency_factor, 1e-6, 1e6);
  options.high_frequency_factor = number_key(scaling, "high_freq_factor", options.high_frequency_factor, 1e-6, 1e6);
  options.original_positions = size_key(scaling, "original_max_position_embeddings", positions);
  if (options.type == "llama3" && options.high_frequency_factor <= options.low_frequency_factor)
    refuse_key("rope_parameters.high_freq_factor", options.high_frequency_factor,
               fmt::format("more than low_freq_factor {}", options.low_frequency_factor));
  return options;
}

std::vector<TensorName> llama_tensor_names(const json& keys) {
  const LlamaConfig config = llama_config(keys);
  std::vector<TensorName> names = {{"embed_tokens.weight", "model.embed_tokens.weight"}};
  auto add = [&](const std::string& name) { names.push_back({name, "model." + name}); };
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = fmt::format("layers.{}.", layer);
    add(prefix + "input_layernorm.weight");
    for (const char* part : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      add(prefix + "self_attn." + part + ".weight");
      if (config.attention_bias) add(prefix + "self_attn." + part + ".bias");
    }
    add(prefix + "post_attention_layernorm.weight");
    for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
      add(prefix + "mlp." + part + ".weight");
      if (config.mlp_bias) add(prefix + "mlp." + part + ".bias");
    }
  }
  add("norm.weight");
  if (!config.tie_word_embeddings) names.push_back({"lm_head.weight", "lm_head.weight"});
  return names;
}

// Files of the bare model lack the prefix; old ones carry the frequencies as buffers.
std::string llama_normalise(const json&, const std::string& file_name) {
  if (file_name.ends_with(".rotary_emb.inv_freq")) return "";
  const bool bare = !file_name.starts_with("model.") && !file_name.starts_with("lm_head.");
  return bare ? "model." + file_name : file_name;
}

// A tied head may be stored beside the embedding that it equals.
bool llama_is_other_heads(const json& keys, const std::string& name) {
  return name == "lm_head.weight" && llama_config(keys).tie_word_embeddings;
}

json llama_hugging_face_config(const json& keys) {
  const LlamaConfig config = llama_config(keys);
  json whole = keys;
  whole["model_type"] = "llama";
  whole["architectures"] = {"LlamaForCausalLM"};
  whole["vocab_size"] = config.vocab_size;
  whole["hidden_size"] = config.hidden_size;
  whole["intermediate_size"] = config.intermediate_size;
  whole["num_hidden_layers"] = config.num_hidden_layers;
  whole["num_attention_heads"] = config.num_attention_heads;
  whole["num_key_value_heads"] = config.num_key_value_heads;
  whole["head_dim"] = config.head_dim;
  whole["max_position_embeddings"] = config.max_position_embeddings;
  whole["hidden_act"] = config.hidden_act;
  whole["rms_norm_eps"] = config.rms_norm_eps;
  whole["attention_bias"] = config.attention_bias;
  whole["mlp_bias"] = config.mlp_bias;
  whole["attention_dropout"] = config.attention_dropout;
  whole["initializer_range"] = config.initializer_range;
  whole["tie_word_embeddings"] = config.tie_word_embeddings;
  if (!has_key(whole, "rope_parameters") && !has_key(whole, "rope_theta")) whole["rope_theta"] = config.rotary.theta;
  // transformers' own defaults lie outside a smaller vocabulary.
  for (const char* token : {"bos_token_id", "eos_token_id"})
    if (!whole.contains(token)) whole[token] = nullptr;
  return whole;
}

// The length of the context is not among them: but for Llama-3's scaling, which names its own, any position is as the
// other's.
json llama_keys_that_decide(const json& keys) {
  const nn::RotaryOptions rotary = llama_config(keys).rotary;
  json deciding =
      keys_of(llama_hugging_face_config(keys), {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                                                "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act",
                                                "rms_norm_eps", "attention_bias", "mlp_bias", "tie_word_embeddings"});
  json& rope = deciding["rope_parameters"] = {{"rope_theta", rotary.theta}, {"rope_type", rotary.type}};
  if (rotary.type != "default") rope["factor"] = rotary.factor;
  if (rotary.type == "llama3") {
    rope["low_freq_factor"] = rotary.low_frequency_factor;
    rope["high_freq_factor"] = rotary.high_frequency_factor;
    rope["original_max_position_embeddings"] = rotary.original_positions;
  }
  return deciding;
}

}  // namespace

LlamaConfig llama_config(const json& keys) {
  require_object(keys, "Llama");
  only_value(keys, "model_type", "llama");
  LlamaConfig config;
  config.vocab_size = size_key(keys, "vocab_size", config.vocab_size);
  config.hidden_size = size_key(keys, "hidden_size", config.hidden_size);
  config.intermediate_size = size_key(keys, "intermediate_size", config.intermediate_size);
  config.num_hidden_layers = size_key(keys, "num_hidden_layers", config.num_hidden_layers);
  config.num_attention_heads = size_key(keys, "num_attention_heads", config.num_attention_heads);
  config.num_key_value_heads = size_key(keys, "num_key_value_heads", config.num_attention_heads);
  config.max_position_embeddings = size_key(keys, "max_position_embeddings", config.max_position_embeddings);
  config.hidden_act = choice_key(keys, "hidden_act", config.hidden_act, nn::activation_names());
  config.rms_norm_eps = number_key(keys, "rms_norm_eps", config.rms_norm_eps, 0, 1);
  config.attention_dropout = number_key(keys, "attention_dropout", config.attention_dropout, 0, 1);
  config.initializer_range = number_key(keys, "initializer_range", config.initializer_range, 0, 100);
  config.attention_bias = flag_key(keys, "attention_bias", config.attention_bias);
  config.mlp_bias = flag_key(keys, "mlp_bias", config.mlp_bias);
  config.tie_word_embeddings = flag_key(keys, "tie_word_embeddings", config.tie_word_embeddings);
  if (has_key(keys, "pad_token_id")) {
    const std::int64_t padding = size_key(keys, "pad_token_id", 0, -config.vocab_size);
    if (padding >= config.vocab_size)
      refuse_key("pad_token_id", padding, fmt::format("below vocab_size {}", config.vocab_size));
    config.pad_token_id = padding < 0 ? padding + config.vocab_size : padding;  // -1 counts from the end
  }
  config.rotary = rotary_options(keys, config.max_position_embeddings);
  if (!has_key(keys, "head_dim") && config.hidden_size % config.num_attention_heads != 0)
    refuse_key("hidden_size", config.hidden_size,
               fmt::format("a multiple of num_attention_heads {}", config.num_attention_heads));
  config.head_dim = size_key(keys, "head_dim", config.hidden_size / config.num_attention_heads);
  if (config.head_dim % 2 != 0) refuse_key("head_dim", config.head_dim, "an even number, whose halves turn together");
  if (config.num_attention_heads % config.num_key_value_heads != 0)
    refuse_key("num_key_value_heads", config.num_key_value_heads,
               fmt::format("a divisor of num_attention_heads {}", config.num_attention_heads));
  return config;
}

ModelFamily llama_family() {
  return {.build = [](const json& keys) -> std::shared_ptr<torch::nn::Module> {
            return std::make_shared<LlamaImpl>(llama_config(keys));
          },
          .tensor_names = llama_tensor_names,
          .hugging_face_config = llama_hugging_face_config,
          .model_type = "llama",
          .architectures = {"LlamaForCausalLM"},
          .vocabulary_size = [](const json& keys) { return llama_config(keys).vocab_size; },
          .context_length = [](const json& keys) { return llama_config(keys).max_position_embeddings; },
          .normalise_name = llama_normalise,
          .is_other_heads = llama_is_other_heads,
          .deciding_keys = llama_keys_that_decide,
          .keys = {"attention_bias", "attention_dropout", "head_dim", "hidden_act", "hidden_size", "initializer_range",
                   "intermediate_size", "max_position_embeddings", "mlp_bias", "num_attention_heads",
                   "num_hidden_layers", "num_key_value_heads", "pretraining_tp", "rms_norm_eps", "rope_parameters",
                   "rope_scaling", "rope_theta", "vocab_size"}};
}

}  // namespace gantry::models
