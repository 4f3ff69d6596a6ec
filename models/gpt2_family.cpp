#include "gantry/models/gpt2_family.h"

#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry::models {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& key, const json& value, const std::string& expected) {
  throw ConfigError({"model.config." + key, "is " + value.dump(), expected, "see the model's config.json"});
}

std::int64_t size_of(const json& config, const std::string& key, std::int64_t missing, std::int64_t least = 1) {
  if (!config.contains(key) || config[key].is_null()) return missing;
  const json& value = config[key];
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (!value.is_number_integer() || value.get<double>() < static_cast<double>(least) ||
      value.get<double>() > static_cast<double>(kMost))
    refuse(key, value, fmt::format("a whole number from {}", least));
  return value.get<std::int64_t>();
}

double number_of(const json& config, const std::string& key, double missing, double least, double below) {
  if (!config.contains(key) || config[key].is_null()) return missing;
  const json& value = config[key];
  if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() < below))
    refuse(key, value, fmt::format("a number from {} to below {}", least, below));
  return value.get<double>();
}

bool flag_of(const json& config, const std::string& key, bool missing) {
  if (!config.contains(key) || config[key].is_null()) return missing;
  if (!config[key].is_boolean()) refuse(key, config[key], "true or false");
  return config[key].get<bool>();
}

void refuse_other_mathematics(const json& config) {
  if (flag_of(config, "scale_attn_by_inverse_layer_idx", false))
    refuse("scale_attn_by_inverse_layer_idx", true, "false");
  if (flag_of(config, "add_cross_attention", false)) refuse("add_cross_attention", true, "false");
  if (!flag_of(config, "scale_attn_weights", true)) refuse("scale_attn_weights", false, "true");
  if (config.contains("model_type") && config["model_type"] != "gpt2")
    refuse("model_type", config["model_type"], "\"gpt2\"");
}

std::vector<TensorName> tensor_names(const json& keys) {
  const Gpt2Config config = gpt2_config(keys);
  std::vector<TensorName> names = {{"wte.weight", "transformer.wte.weight"}, {"wpe.weight", "transformer.wpe.weight"}};
  const std::pair<const char*, const char*> norms[] = {{"ln_1", "ln_1"}, {"ln_2", "ln_2"}};
  const std::pair<const char*, const char*> projections[] = {
      {"attn.qkv", "attn.c_attn"}, {"attn.proj", "attn.c_proj"}, {"mlp.up", "mlp.c_fc"}, {"mlp.down", "mlp.c_proj"}};
  for (std::int64_t layer = 0; layer < config.n_layer; ++layer) {
    const std::string ours = fmt::format("h.{}.", layer), theirs = "transformer." + ours;
    for (const auto& [mine, other] : norms)
      for (const char* part : {".weight", ".bias"}) names.push_back({ours + mine + part, theirs + other + part});
    for (const auto& [mine, other] : projections) {  // Hugging Face's Conv1D stores [in, out]
      names.push_back({ours + mine + ".weight", theirs + other + ".weight", true});
      names.push_back({ours + mine + ".bias", theirs + other + ".bias"});
    }
  }
  names.push_back({"ln_f.weight", "transformer.ln_f.weight"});
  names.push_back({"ln_f.bias", "transformer.ln_f.bias"});
  if (!config.tie_word_embeddings) names.push_back({"lm_head.weight", "lm_head.weight"});
  return names;
}

json hugging_face_config(const json& keys) {
  const Gpt2Config config = gpt2_config(keys);
  json whole = keys;
  whole["model_type"] = "gpt2";
  whole["architectures"] = {"GPT2LMHeadModel"};
  whole["vocab_size"] = config.vocab_size;
  whole["n_positions"] = config.n_positions;
  whole["n_embd"] = config.n_embd;
  whole["n_layer"] = config.n_layer;
  whole["n_head"] = config.n_head;
  whole["n_inner"] = config.n_inner > 0 ? json(config.n_inner) : json(nullptr);
  whole["activation_function"] = config.activation_function;
  whole["resid_pdrop"] = config.resid_pdrop;
  whole["embd_pdrop"] = config.embd_pdrop;
  whole["attn_pdrop"] = config.attn_pdrop;
  whole["layer_norm_epsilon"] = config.layer_norm_epsilon;
  whole["initializer_range"] = config.initializer_range;
  whole["tie_word_embeddings"] = config.tie_word_embeddings;
  // transformers' own defaults lie outside a smaller vocabulary.
  for (const char* token : {"bos_token_id", "eos_token_id"})
    if (!whole.contains(token)) whole[token] = nullptr;
  return whole;
}

}  // namespace

Gpt2Config gpt2_config(const json& keys) {
  if (!keys.is_object())
    throw ConfigError({"model.config", "is " + keys.dump(), "a mapping of Hugging Face's GPT-2 keys", ""});
  refuse_other_mathematics(keys);
  Gpt2Config config;
  config.vocab_size = size_of(keys, "vocab_size", config.vocab_size);
  config.n_positions = size_of(keys, "n_positions", config.n_positions);
  config.n_embd = size_of(keys, "n_embd", config.n_embd);
  config.n_layer = size_of(keys, "n_layer", config.n_layer);
  config.n_head = size_of(keys, "n_head", config.n_head);
  config.n_inner = size_of(keys, "n_inner", 0);
  config.resid_pdrop = number_of(keys, "resid_pdrop", config.resid_pdrop, 0, 1);
  config.embd_pdrop = number_of(keys, "embd_pdrop", config.embd_pdrop, 0, 1);
  config.attn_pdrop = number_of(keys, "attn_pdrop", config.attn_pdrop, 0, 1);
  config.layer_norm_epsilon = number_of(keys, "layer_norm_epsilon", config.layer_norm_epsilon, 0, 1);
  config.initializer_range = number_of(keys, "initializer_range", config.initializer_range, 0, 100);
  config.tie_word_embeddings = flag_of(keys, "tie_word_embeddings", config.tie_word_embeddings);
  if (keys.contains("activation_function")) {
    const json& name = keys["activation_function"];
    if (name != "gelu_new" && name != "gelu" && name != "relu")
      refuse("activation_function", name, "gelu_new, gelu or relu");
    config.activation_function = name;
  }
  if (config.n_embd % config.n_head != 0)
    refuse("n_embd", config.n_embd, fmt::format("a multiple of n_head {}", config.n_head));
  return config;
}

ModelFamily gpt2_family() {
  return {.build = [](const json& keys) -> std::shared_ptr<torch::nn::Module> {
            return std::make_shared<Gpt2Impl>(gpt2_config(keys));
          },
          .tensor_names = tensor_names,
          .hugging_face_config = hugging_face_config,
          .model_type = "gpt2",
          .architectures = {"GPT2LMHeadModel"},
          .vocabulary_size = [](const json& keys) { return gpt2_config(keys).vocab_size; },
          .context_length = [](const json& keys) { return gpt2_config(keys).n_positions; },
          .layers = [](const json& keys) { return static_cast<int>(gpt2_config(keys).n_layer); }};
}

}  // namespace gantry::models
