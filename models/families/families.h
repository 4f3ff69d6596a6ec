// The families of described decoders, with one file for each.
#pragma once

#include "gantry/models/described/decoder_family.h"

namespace gantry::models {

struct SsdSizes;

// Reads which layers of a family of Qwen have a window. `full`: the number of layers before those with a window, if
// config.json has no max_window_layers.
void read_qwen_windows(ConfigReader& reader, DecoderSpec& spec, std::int64_t full = 28);

// Returns the names of tensors in models that read images, whose text decoder is stored below language_model.
FileNames language_model_files();

// Sets the properties that the families of Gemma share: norms of 1 + weight, and a scaled embedding.
void make_gemma(DecoderSpec& spec);

// Shared by the families of DeepSeek and by those that follow them. `missing` has the values of absent keys.
// Latent attention in every layer, with `rope` rotary features.
void read_latent_attention(ConfigReader& reader, DecoderSpec& spec, std::int64_t rope);
// Experts with sigmoid scores and an expert bias. In `missing`, shared_width is a number of experts.
ExpertsSpec read_sigmoid_experts(ConfigReader& reader, const std::string& activation, const ExpertsSpec& missing);
// Gives `experts` to the layers after the first first_k_dense_replace ones.
void give_experts_after(ConfigReader& reader, DecoderSpec& spec, const ExpertsSpec& experts, std::int64_t missing);

// Adds the layers of multi-token prediction if config.json has kMtpFactor above 0: as many as num_nextn_predict_layers,
// equal to the last layer. Call it before give_experts_after(). Throws ConfigError if there are none.
void read_mtp(ConfigReader& reader, DecoderSpec& spec);

// Shared by the families with experts. Returns the coefficient of their balancing loss, by default `missing`; 0 if
// output_router_logits is not true.
double read_router_loss(ConfigReader& reader, double missing = 0.001);
// Gives `experts` to every decoder_sparse_step-th layer, except those of mlp_only_layers (the families of Qwen).
void give_every_experts(ConfigReader& reader, DecoderSpec& spec, const ExpertsSpec& experts);
// The names of files that store each expert separately.
FileNames separate_expert_files();
// Throws ConfigError if a token uses more experts than it chooses from.
void check_experts(const ExpertsSpec& experts);
// Keys of a small model that has experts.
nlohmann::json small_keys_with(const nlohmann::json& more);

// Multipliers of embedding, residual branches, scores and logits, and the biases of attention.
void read_granite_multipliers(ConfigReader& reader, DecoderSpec& spec);

// Shared by the families with mixers of Mamba, which are registered below "mamba".
// Layers of one norm and one mixer, which the caller sets. The values of absent keys:
struct MambaDefaults {
  std::int64_t vocabulary = 50280, hidden = 768, layers = 32;
  bool tied = true;
};
DecoderSpec read_mamba_decoder(ConfigReader& reader, const MambaDefaults& defaults);
// Reads the sizes of Mamba-2 from mamba_n_heads, mamba_d_state and so on.
SsdSizes read_named_ssd(ConfigReader& reader, const DecoderSpec& spec);
void read_step_limit(ConfigReader& reader, SsdSizes& sizes);
// Throws ConfigError if the groups do not divide the heads. `keys`: the names of both keys.
struct SsdKeys {
  std::string heads, groups;
};
void check_ssd(const SsdSizes& sizes, const SsdKeys& keys);
// The names of a mixer's tensors in files that store it at `theirs` within a layer.
std::vector<std::pair<std::string, std::string>> mamba_file_names(const std::string& theirs);
// The same for mixers of Mamba, whose dt_bias is the bias of dt_proj.
std::vector<std::pair<std::string, std::string>> scan_file_names(const std::string& theirs);
// The rank of dt at `key`; "auto", and without the key: a sixteenth of the features.
std::int64_t read_step_rank(ConfigReader& reader, const std::string& key, std::int64_t hidden);

DecoderFamily apertus_family();
DecoderFamily bamba_family();
DecoderFamily bloom_family();
DecoderFamily codegen_family();
DecoderFamily cohere_family();
DecoderFamily cohere2_family();
DecoderFamily deepseek_v2_family();
DecoderFamily deepseek_v3_family();
DecoderFamily dots1_family();
DecoderFamily ernie4_5_family();
DecoderFamily ernie4_5_moe_family();
DecoderFamily exaone4_family();
DecoderFamily falcon_family();
DecoderFamily falcon_h1_family();
DecoderFamily falcon_mamba_family();
DecoderFamily gemma_family();
DecoderFamily gemma2_family();
DecoderFamily gemma3_family();
DecoderFamily gemma3_text_family();
DecoderFamily gemma3n_family();
DecoderFamily gemma3n_text_family();
DecoderFamily glm4_family();
DecoderFamily glm4_moe_family();
DecoderFamily glm4v_family();
DecoderFamily gpt2_family();
DecoderFamily gpt_bigcode_family();
DecoderFamily gpt_neo_family();
DecoderFamily gpt_neox_family();
DecoderFamily gpt_oss_family();
DecoderFamily gptj_family();
DecoderFamily granite_family();
DecoderFamily granitemoe_family();
DecoderFamily granitemoehybrid_family();
DecoderFamily helium_family();
DecoderFamily hunyuan_v1_dense_family();
DecoderFamily jamba_family();
DecoderFamily kimi_k2_family();
DecoderFamily kimi_linear_family();
DecoderFamily lfm2_family();
DecoderFamily llama_family();
DecoderFamily llama4_family();
DecoderFamily llama4_text_family();
DecoderFamily llava_family();
DecoderFamily mamba_family();
DecoderFamily mamba2_family();
DecoderFamily minimax_family();
DecoderFamily minimax_m2_family();
DecoderFamily mistral_family();
DecoderFamily mistral3_family();
DecoderFamily mixtral_family();
DecoderFamily nemotron_family();
DecoderFamily nemotron_h_family();
DecoderFamily olmo_family();
DecoderFamily olmo2_family();
DecoderFamily olmo3_family();
DecoderFamily olmo_hybrid_family();
DecoderFamily olmoe_family();
DecoderFamily opt_family();
DecoderFamily phi_family();
DecoderFamily phi3_family();
DecoderFamily qwen2_family();
DecoderFamily qwen2_5_vl_family();
DecoderFamily qwen2_moe_family();
DecoderFamily qwen2_vl_family();
DecoderFamily qwen3_family();
DecoderFamily qwen3_moe_family();
DecoderFamily qwen3_next_family();
DecoderFamily qwen3_vl_family();
DecoderFamily qwen3_5_text_family();
DecoderFamily qwen3_5_family();
DecoderFamily qwen3_5_moe_family();
DecoderFamily qwen3_5_moe_text_family();
DecoderFamily recurrent_gemma_family();
DecoderFamily seed_oss_family();
DecoderFamily smollm3_family();
DecoderFamily stablelm_family();
DecoderFamily starcoder2_family();

}  // namespace gantry::models
