// Models with an image encoder, and plans of them.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/planner/config.h"
#include "gantry/planner/estimate.h"
#include "program.h"

namespace gantry::planner {

inline const std::vector<std::string> kTowerFamilies = {"gemma3", "llava", "mistral3", "qwen2_5_vl"};

inline std::string folder_of(const std::string& family) {
  return GANTRY_SOURCE_DIR "/tests/golden/images/chats/" + family;
}

inline models::DecoderSpec tower_spec(const std::string& family) {
  std::ifstream file(folder_of(family) + "/config.json");
  nlohmann::json keys = nlohmann::json::parse(file);
  keys[models::kImageEncoder] = true;
  return *models::described_decoder(keys);
}

inline Workload tower_step_of(models::DecoderSpec model, std::int64_t sequence = 64) {
  return {.model = std::move(model),
          .sequence = sequence,
          .batch = 8,
          .precision = "float32",
          .program = gantry_program("float32", {})};
}

inline Estimate tower_estimate(const Workload& workload, const Layout& layout) {
  return estimate(workload, layout, with_ranks(load_cluster("a100_80g"), layout.ranks(), /*grows=*/true));
}

// Google's Gemma 3 of 4B parameters, and Qwen2.5-VL of 3B.
inline constexpr const char* kGemma =
    "model: {policy: gemma3, config: {image_encoder: true, mm_tokens_per_image: 256, text_config: {hidden_size: 2560, "
    "intermediate_size: 10240, num_hidden_layers: 34, num_attention_heads: 8, num_key_value_heads: 4, head_dim: 256, "
    "vocab_size: 262208, sliding_window: 1024}, vision_config: {hidden_size: 1152, intermediate_size: 4304, "
    "num_hidden_layers: 27, num_attention_heads: 16, image_size: 896, patch_size: 14}}}\n"
    "data: {format: tensors, path: x, sequence_length: 2048, batch_size: 32}\nprecision: bfloat16\n";
inline constexpr const char* kQwen =
    "model: {policy: qwen2_5_vl, config: {image_encoder: true, text_config: {hidden_size: 2048, intermediate_size: "
    "11008, num_hidden_layers: 36, num_attention_heads: 16, num_key_value_heads: 2, vocab_size: 151936, "
    "tie_word_embeddings: true, rope_parameters: {rope_type: default, rope_theta: 1000000.0, mrope_section: [16, 24, "
    "24]}}, vision_config: {hidden_size: 1280, intermediate_size: 3420, depth: 32, num_heads: 16, out_hidden_size: "
    "2048}}}\n"
    "data: {format: tensors, path: x, sequence_length: 1024, batch_size: 32}\nprecision: bfloat16\n";

inline PlanRequest tower_request(const std::string& text, const std::vector<std::string>& sets = {}) {
  const gantry::testing::ScratchFolder scratch;
  return read_plan_request(scratch.write("c.yaml", text), sets, /*only_stated=*/false);
}

}  // namespace gantry::planner
