// The families of described decoders: a file each.
#pragma once

#include "gantry/models/described/decoder_family.h"

namespace gantry::models {

// What the families of Qwen share: which layers slide a window.
void read_qwen_windows(ConfigReader& reader, DecoderSpec& spec);

// What the families of Gemma share: norms of 1 + weight, and an embedding that is multiplied.
void make_gemma(DecoderSpec& spec);

DecoderFamily bloom_family();
DecoderFamily cohere_family();
DecoderFamily cohere2_family();
DecoderFamily falcon_family();
DecoderFamily gemma_family();
DecoderFamily gemma2_family();
DecoderFamily gemma3_text_family();
DecoderFamily glm4_family();
DecoderFamily gpt2_family();
DecoderFamily gpt_neox_family();
DecoderFamily gptj_family();
DecoderFamily granite_family();
DecoderFamily llama_family();
DecoderFamily mistral_family();
DecoderFamily olmo_family();
DecoderFamily olmo2_family();
DecoderFamily olmo3_family();
DecoderFamily opt_family();
DecoderFamily phi3_family();
DecoderFamily qwen2_family();
DecoderFamily qwen3_family();
DecoderFamily smollm3_family();
DecoderFamily stablelm_family();
DecoderFamily starcoder2_family();

}  // namespace gantry::models
