#include "gantry/models/gpt2_family.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <torch/torch.h>

#include "gantry/models/config_keys.h"

namespace gantry::models {
namespace {

using nlohmann::json;

void refuse_other_mathematics(const json& config) {
  only_value(config, "scale_attn_by_inverse_layer_idx", false);
  only_value(config, "add_cross_attention", false);
  only_value(config, "scale_attn_weights", true);
  only_value(config, "model_type", "gpt2");
}

std::vector<TensorName> gpt2_tensor_names(const json& keys) {
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

// Causal masks that old files carry as buffers; files of the bare model lack the prefix.
std::string gpt2_normalise(const json&, const std::string& file_name) {
  if (file_name.ends_with(".attn.bias") || file_name.ends_with(".attn.masked_bias")) return "";
  const bool bare = !file_name.starts_with("transformer.") && !file_name.starts_with("lm_head.");
  return bare ? "transformer." + file_name : file_name;
}

// A tied head may be stored beside the embedding that it equals.
bool gpt2_is_other_heads(const json& keys, const std::string& name) {
  return name == "lm_head.weight" && gpt2_config(keys).tie_word_embeddings;
}

json gpt2_hugging_face_config(const json& keys) {
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

json gpt2_keys_that_decide(const json& keys) {
  const Gpt2Config config = gpt2_config(keys);
  json deciding =
      keys_of(gpt2_hugging_face_config(keys), {"vocab_size", "n_positions", "n_embd", "n_layer", "n_head",
                                               "activation_function", "layer_norm_epsilon", "tie_word_embeddings"});
  deciding["n_inner"] = config.n_inner > 0 ? config.n_inner : 4 * config.n_embd;
  return deciding;
}

}  // namespace

Gpt2Config gpt2_config(const json& keys) {
  require_object(keys, "GPT-2");
  refuse_other_mathematics(keys);
  Gpt2Config config;
  config.vocab_size = size_key(keys, "vocab_size", config.vocab_size);
  config.n_positions = size_key(keys, "n_positions", config.n_positions);
  config.n_embd = size_key(keys, "n_embd", config.n_embd);
  config.n_layer = size_key(keys, "n_layer", config.n_layer);
  config.n_head = size_key(keys, "n_head", config.n_head);
  config.n_inner = size_key(keys, "n_inner", 0);
  config.resid_pdrop = number_key(keys, "resid_pdrop", config.resid_pdrop, 0, 1);
  config.embd_pdrop = number_key(keys, "embd_pdrop", config.embd_pdrop, 0, 1);
  config.attn_pdrop = number_key(keys, "attn_pdrop", config.attn_pdrop, 0, 1);
  config.layer_norm_epsilon = number_key(keys, "layer_norm_epsilon", config.layer_norm_epsilon, 0, 1);
  config.initializer_range = number_key(keys, "initializer_range", config.initializer_range, 0, 100);
  config.tie_word_embeddings = flag_key(keys, "tie_word_embeddings", config.tie_word_embeddings);
  config.activation_function =
      choice_key(keys, "activation_function", config.activation_function, {"gelu_new", "gelu", "relu"});
  if (config.n_embd % config.n_head != 0)
    refuse_key("n_embd", config.n_embd, fmt::format("a multiple of n_head {}", config.n_head));
  return config;
}

ModelFamily gpt2_family() {
  return {.build = [](const json& keys) -> std::shared_ptr<torch::nn::Module> {
            return std::make_shared<Gpt2Impl>(gpt2_config(keys));
          },
          .tensor_names = gpt2_tensor_names,
          .hugging_face_config = gpt2_hugging_face_config,
          .model_type = "gpt2",
          .architectures = {"GPT2LMHeadModel"},
          .vocabulary_size = [](const json& keys) { return gpt2_config(keys).vocab_size; },
          .context_length = [](const json& keys) { return gpt2_config(keys).n_positions; },
          .normalise_name = gpt2_normalise,
          .is_other_heads = gpt2_is_other_heads,
          .deciding_keys = gpt2_keys_that_decide,
          .keys = {"activation_function",
                   "attn_pdrop",
                   "embd_pdrop",
                   "initializer_range",
                   "layer_norm_epsilon",
                   "n_ctx",
                   "n_embd",
                   "n_head",
                   "n_inner",
                   "n_layer",
                   "n_positions",
                   "reorder_and_upcast_attn",
                   "resid_pdrop",
                   "scale_attn_by_inverse_layer_idx",
                   "scale_attn_weights",
                   "summary_activation",
                   "summary_first_dropout",
                   "summary_proj_to_labels",
                   "summary_type",
                   "summary_use_proj",
                   "vocab_size"}};
}

}  // namespace gantry::models
