#include "gantry/models/described/key_spellings.h"

#include <map>

namespace gantry::models {
namespace {

using Spellings = std::vector<KeySpelling>;

// The names of GPT-2's keys, which transformers' attribute maps and older classes share.
const Spellings kShortNames = {
    {"n_layer", "num_hidden_layers"}, {"n_head", "num_attention_heads"}, {"n_embd", "hidden_size"}};
const Spellings kLongNames = {{"num_hidden_layers", "n_layer"},
                              {"num_attention_heads", "n_head"},
                              {"hidden_size", "n_embd"},
                              {"max_position_embeddings", "n_positions"},
                              {"hidden_act", "activation_function", false}};
const Spellings kExperts = {{"num_experts", "num_local_experts"}};

Spellings with(Spellings spellings, const Spellings& more) {
  spellings.insert(spellings.end(), more.begin(), more.end());
  return spellings;
}

std::map<std::string, Spellings> all_spellings() {
  const Spellings activation = with(kShortNames, {{"activation_function", "hidden_act", false}});
  std::map<std::string, Spellings> all = {
      {"bloom", {{"num_hidden_layers", "n_layer"}, {"num_attention_heads", "n_head"}, {"n_embed", "hidden_size"}}},
      {"deepseek_v3", with(activation, {{"num_local_experts", "n_routed_experts"}})},
      {"falcon", with(kShortNames, {{"n_embed", "hidden_size"}})},
      {"gemma2", with(kShortNames, {{"activation_function", "hidden_activation", false}})},
      {"gemma3_text", with(kShortNames, {{"activation_function", "hidden_activation", false}})},
      {"gemma3",
       {{"image_token_id", "image_token_index"},
        {"boi_token_id", "boi_token_index"},
        {"eoi_token_id", "eoi_token_index"}}},
      {"gpt2", kLongNames},
      {"gpt_oss", with(activation, kExperts)},
      {"gptj", kLongNames},
      {"llava", {{"image_token_id", "image_token_index"}}},
      {"mistral3", {{"image_token_id", "image_token_index"}}},
      {"mixtral", with(activation, kExperts)},
      {"opt", with(kShortNames, {{"hidden_act", "activation_function", false}})},
      {"starcoder2", with(activation, {{"layer_norm_epsilon", "norm_epsilon", false}})},
      {"t5",
       {{"hidden_size", "d_model"},
        {"num_attention_heads", "num_heads"},
        {"num_hidden_layers", "num_layers"},
        {"head_dim", "d_kv"}}},
      {"whisper",
       {{"hidden_size", "d_model"},
        {"num_attention_heads", "encoder_attention_heads"},
        {"num_key_value_heads", "encoder_attention_heads"},
        {"num_hidden_layers", "encoder_layers"}}}};
  for (const char* family : {"bert",      "cohere",  "cohere2",   "gemma",   "glm4",    "gpt_neox", "granite",
                             "llama",     "mistral", "olmo",      "olmo2",   "olmo3",   "phi3",     "qwen2",
                             "qwen2_moe", "qwen3",   "qwen3_moe", "roberta", "smollm3", "stablelm", "vit"})
    all[family] = activation;
  return all;
}

}  // namespace

const Spellings& key_spellings(const std::string& model_type) {
  static const std::map<std::string, Spellings> all = all_spellings();
  static const Spellings none;
  const auto found = all.find(model_type);
  return found == all.end() ? none : found->second;
}

}  // namespace gantry::models
