// The families of described decoders: a file each.
#pragma once

#include "gantry/models/described/decoder_family.h"

namespace gantry::models {

// Reads which layers of a family of Qwen have a window. `full`: the number of layers before those with a window, if
// config.json has no max_window_layers.
void read_qwen_windows(ConfigReader& reader, DecoderSpec& spec, std::int64_t full = 28);

// Returns the names of tensors in models that read images, whose text decoder is stored below language_model.
FileNames language_model_files();

// What the families of Gemma share: norms of 1 + weight, and an embedding that is multiplied.
void make_gemma(DecoderSpec& spec);

// What the families with experts share: the coefficient of their balancing loss, 0 where output_router_logits is not
// true; and keys of a small model that has experts.
double read_router_loss(ConfigReader& reader);
// ConfigError where the experts that a token uses are more than those that it chooses from.
void check_experts(const ExpertsSpec& experts);
nlohmann::json small_keys_with(const nlohmann::json& more);

DecoderFamily bloom_family();
DecoderFamily cohere_family();
DecoderFamily cohere2_family();
DecoderFamily deepseek_v3_family();
DecoderFamily falcon_family();
DecoderFamily gemma_family();
DecoderFamily gemma2_family();
DecoderFamily gemma3_family();
DecoderFamily gemma3_text_family();
DecoderFamily glm4_family();
DecoderFamily gpt2_family();
DecoderFamily gpt_neox_family();
DecoderFamily gptj_family();
DecoderFamily gpt_oss_family();
DecoderFamily granite_family();
DecoderFamily llama_family();
DecoderFamily llava_family();
DecoderFamily mistral_family();
DecoderFamily mistral3_family();
DecoderFamily mixtral_family();
DecoderFamily olmo_family();
DecoderFamily olmo2_family();
DecoderFamily olmo3_family();
DecoderFamily opt_family();
DecoderFamily phi3_family();
DecoderFamily qwen2_family();
DecoderFamily qwen2_5_vl_family();
DecoderFamily qwen2_moe_family();
DecoderFamily qwen2_vl_family();
DecoderFamily qwen3_family();
DecoderFamily qwen3_moe_family();
DecoderFamily qwen3_vl_family();
DecoderFamily smollm3_family();
DecoderFamily stablelm_family();
DecoderFamily starcoder2_family();

}  // namespace gantry::models
