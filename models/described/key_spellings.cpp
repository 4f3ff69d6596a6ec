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
  const Spellings routed = with(activation, {{"num_local_experts", "n_routed_experts"}});
  std::map<std::string, Spellings> all = {
      {"bloom", {{"num_hidden_layers", "n_layer"}, {"num_attention_heads", "n_head"}, {"n_embed", "hidden_size"}}},
      {"codegen", kLongNames},
      {"deepseek_v2", with(activation, {{"num_experts", "n_routed_experts"}})},
      {"deepseek_v3", routed},
      {"dots1", routed},
      {"ernie4_5_moe", with(activation, {{"num_experts", "moe_num_experts"}, {"num_experts_per_tok", "moe_k"}})},
      {"falcon", with(kShortNames, {{"n_embed", "hidden_size"}})},
      {"gemma2", with(kShortNames, {{"activation_function", "hidden_activation", false}})},
      {"gemma3_text", with(kShortNames, {{"activation_function", "hidden_activation", false}})},
      {"gemma3",
       {{"image_token_id", "image_token_index"},
        {"boi_token_id", "boi_token_index"},
        {"eoi_token_id", "eoi_token_index"}}},
      {"glm4_moe", routed},
      {"gpt2", kLongNames},
      {"gpt_bigcode", kLongNames},
      {"gpt_neo",
       {{"num_hidden_layers", "num_layers"},
        {"num_attention_heads", "num_heads"},
        {"hidden_act", "activation_function", false}}},
      {"gpt_oss", with(activation, kExperts)},
      {"gptj", kLongNames},
      {"granitemoehybrid", {{"layers_block_type", "layer_types"}}},
      {"falcon_h1", {{"layer_types", "layers_block_type"}}},
      {"jamba", {{"num_local_experts", "num_experts"}}},
      {"kimi_k2", routed},
      {"kimi_linear",
       {{"max_position_embeddings", "model_max_length"},
        {"norm_topk_prob", "moe_renormalize"},
        {"n_group", "num_expert_group"},
        {"num_local_experts", "num_experts"},
        {"num_experts_per_tok", "num_experts_per_token"},
        {"n_shared_experts", "num_shared_experts"}}},
      {"minimax", kExperts},
      {"minimax_m2", with(activation, kExperts)},
      {"nemotron_h",
       {{"layer_types", "layers_block_type"},
        {"num_local_experts", "n_routed_experts"},
        {"norm_eps", "layer_norm_epsilon"},
        {"mamba_n_groups", "n_groups"},
        {"mamba_d_conv", "conv_kernel"},
        {"mamba_conv_bias", "use_conv_bias"},
        {"mamba_dt_min", "time_step_min"},
        {"mamba_dt_max", "time_step_max"},
        {"mamba_dt_init_floor", "time_step_floor"}}},
      {"llama4",
       {{"image_token_id", "image_token_index"},
        {"boi_token_id", "boi_token_index"},
        {"eoi_token_id", "eoi_token_index"}}},
      {"llava", {{"image_token_id", "image_token_index"}}},
      {"mistral3", {{"image_token_id", "image_token_index"}}},
      {"mixtral", with(activation, kExperts)},
      {"bamba", {{"layer_types", "layers_block_type"}}},
      {"recurrent_gemma", {{"sliding_window", "attention_window_size"}, {"layer_types", "layers_block_type"}}},
      {"olmoe", with(activation, {{"num_local_experts", "num_experts"}})},
      {"opt", with(kShortNames, {{"hidden_act", "activation_function", false}})},
      {"starcoder2", with(activation, {{"layer_norm_epsilon", "norm_epsilon", false}})},
      {"bart", {{"hidden_size", "d_model"}, {"num_attention_heads", "encoder_attention_heads"}}},
      {"pegasus",
       {{"hidden_size", "d_model"},
        {"num_attention_heads", "encoder_attention_heads"},
        {"num_hidden_layers", "encoder_layers"}}},
      {"distilbert", {{"hidden_size", "dim"}, {"num_attention_heads", "n_heads"}, {"num_hidden_layers", "n_layers"}}},
      {"nomic_bert", with(kShortNames, {{"n_inner", "intermediate_size", false},
                                        {"n_positions", "max_position_embeddings", false},
                                        {"layer_norm_epsilon", "layer_norm_eps", false},
                                        {"attn_pdrop", "attention_probs_dropout_prob", false},
                                        {"resid_pdrop", "hidden_dropout_prob", false}})},
      {"whisper",
       {{"hidden_size", "d_model"},
        {"num_attention_heads", "encoder_attention_heads"},
        {"num_key_value_heads", "encoder_attention_heads"},
        {"num_hidden_layers", "encoder_layers"}}}};
  for (const char* family : {"t5", "mt5", "umt5"})
    all[family] = {{"hidden_size", "d_model"},
                   {"num_attention_heads", "num_heads"},
                   {"num_hidden_layers", "num_layers"},
                   {"head_dim", "d_kv"}};
  for (const char* family : {"bert",    "cohere",   "cohere2",  "ernie4_5",   "exaone4", "gemma",
                             "glm4",    "gpt_neox", "granite",  "granitemoe", "helium",  "hunyuan_v1_dense",
                             "llama",   "mistral",  "nemotron", "olmo",       "olmo2",   "olmo3",
                             "phi",     "phi3",     "qwen2",    "qwen2_moe",  "qwen3",   "qwen3_moe",
                             "roberta", "seed_oss", "smollm3",  "stablelm",   "vit",     "xlm-roberta"})
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
