// Layers with delta rules and lightning attention in float64: every layout trains like one rank.
#include <gtest/gtest.h>

#include "model_case.h"

namespace gantry::testing {
namespace {

struct MixerGridCase {
  std::string name, family, keys;
  bool has_experts = false;
};

std::vector<MixerGridCase> mixer_grid_cases() {
  const std::string delta = R"("layer_types": ["linear_attention", "full_attention", "linear_attention"],
                               "head_dim": 8, "linear_key_head_dim": 5, "linear_value_head_dim": 3,)";
  const std::string experts = R"("num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
                                 "shared_expert_intermediate_size": 6,)";
  return {
      {"rows_by_key_head", "qwen3_next",
       "{" + delta + experts + R"("linear_num_key_heads": 3, "linear_num_value_heads": 6})", true},
      // Three ranks have 3, 3 and 2 value heads, of which the second one's use different key heads.
      {"shared_key_heads", "qwen3_5_text", "{" + delta + R"("linear_num_key_heads": 2, "linear_num_value_heads": 8})"},
      {"one_key_head", "qwen3_5_moe_text",
       "{" + delta + experts + R"("linear_num_key_heads": 1, "linear_num_value_heads": 3})", true},
      {"separate_projections", "olmo_hybrid",
       "{" + delta + R"("linear_num_key_heads": 2, "linear_num_value_heads": 8})"},
      {"lightning", "minimax",
       R"({"layer_types": ["linear_attention", "full_attention", "linear_attention"], "num_local_experts": 4,
               "intermediate_size": 8, "linear_attn_beta_factor": 0.7, "mlp_alpha_factor": 1.2})",
       true},
      {"one_block", "nemotron_h",
       R"({"layers_block_type": ["moe", "linear_attention", "full_attention"], "head_dim": 6, "mamba_num_heads": 6,
               "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 5, "n_routed_experts": 4,
               "num_experts_per_tok": 2, "moe_intermediate_size": 8, "moe_shared_expert_intermediate_size": 6})",
       true},
      {"linear_recurrence", "recurrent_gemma",
       R"({"lru_width": 20, "attention_window_size": 4, "block_types": ["recurrent", "attention"]})"},
      {"kimi_delta", "kimi_linear",
       R"({"layer_types": ["linear_attention", "full_attention", "linear_attention"], "linear_num_heads": 3,
               "linear_head_dim": 5, "num_key_value_heads": 4, "kv_lora_rank": 6, "qk_nope_head_dim": 5,
               "qk_rope_head_dim": 4, "v_head_dim": 3, "num_experts": 4, "num_experts_per_token": 2,
               "moe_intermediate_size": 8})",
       true}};
}

class MixerGrid : public ::testing::TestWithParam<MixerGridCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, MixerGrid, ::testing::ValuesIn(mixer_grid_cases()),
                         [](const auto& info) { return info.param.name; });

ModelCase model_of(const MixerGridCase& what) {
  return {.family = what.family,
          .layers = 3,
          .heads = 4,
          .key_heads = what.family == "kimi_linear" ? 4 : 2,
          .vocabulary = 53,
          .tied = false,
          .batches = {4, 3},
          .keys = what.keys};
}

TEST_P(MixerGrid, EveryLayoutTrainsLikeOneRank) {
  std::vector<Parallelism> layouts = mixed_layouts();
  layouts.push_back({.layout = {.data = 2}, .zero = 3});
  layouts.push_back({.layout = {.data = 2, .tensor = 2}, .recompute = "parts", .zero = 3});
  if (GetParam().has_experts)
    for (const int tensor : {1, 2})
      layouts.push_back({.layout = {.data = 2, .tensor = tensor, .expert = 2}, .sequence_parallel = tensor > 1});
  expect_layouts_equal(model_of(GetParam()), layouts);
}

TEST_P(MixerGrid, PackedAndPaddedSamples) {
  ModelCase what = model_of(GetParam());
  const std::vector<Parallelism> layouts = {{.layout = {.tensor = 2}, .sequence_parallel = true},
                                            {.layout = {.pipeline = 2, .tensor = 2}, .microbatches = 2}};
  what.packed = true;
  expect_layouts_equal(what, layouts);
  what.packed = false;
  what.padded = true;
  expect_layouts_equal(what, layouts);
}

}  // namespace
}  // namespace gantry::testing
