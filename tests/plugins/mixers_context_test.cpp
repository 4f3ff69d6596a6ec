// Ranks that share sequences of models with mixers other than attention, compared with one rank: every kind,
// the methods of attention, and the other axes.
#include <algorithm>
#include <gtest/gtest.h>
#include <iterator>
#include <tuple>

#include "grid.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

struct SharedMixerCase {
  const char *name, *family, *keys;
};

// Numbers of heads that the ranks do not divide, and groups and key heads that several ranks read.
const SharedMixerCase kSharedMixers[] = {
    {"gated_delta_by_key_head", "qwen3_next",
     R"({"layer_types": ["linear_attention", "full_attention", "linear_attention"], "head_dim": 8,
         "linear_key_head_dim": 5, "linear_value_head_dim": 3, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
         "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
         "shared_expert_intermediate_size": 6})"},
    {"gated_delta_joined", "qwen3_5_text",
     R"({"layer_types": ["linear_attention", "full_attention", "linear_attention"], "head_dim": 8,
         "linear_key_head_dim": 5, "linear_value_head_dim": 3, "linear_num_key_heads": 1, "linear_num_value_heads": 7})"},
    {"gated_delta_separate", "olmo_hybrid",
     R"({"layer_types": ["linear_attention", "full_attention", "linear_attention"], "head_dim": 8,
         "linear_key_head_dim": 5, "linear_value_head_dim": 3, "linear_num_key_heads": 2, "linear_num_value_heads": 8})"},
    {"mamba2_one_group", "mamba2", R"({"num_heads": 6, "head_dim": 8, "n_groups": 1, "state_size": 5})"},
    {"mamba2_next_to_attention", "falcon_h1",
     R"({"mamba_d_ssm": 35, "mamba_d_head": 5, "mamba_n_heads": 7, "mamba_n_groups": 7, "mamba_d_state": 4,
         "mamba_rms_norm": true, "mamba_norm_before_gate": false})"},
    {"mamba2_groups", "nemotron_h",
     R"({"layers_block_type": ["linear_attention", "moe", "full_attention"], "mamba_num_heads": 8, "mamba_head_dim": 6,
         "n_groups": 2, "ssm_state_size": 5, "head_dim": 6, "n_routed_experts": 4, "num_experts_per_tok": 2,
         "moe_intermediate_size": 11, "moe_shared_expert_intermediate_size": 8})"},
    {"mamba", "jamba",
     R"({"mamba_d_state": 5, "mamba_dt_rank": 4, "attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 4,
         "intermediate_size": 11})"},
    {"short_convolution", "lfm2",
     R"({"layer_types": ["conv", "full_attention", "conv"], "conv_bias": true, "block_multiple_of": 5})"},
    {"kimi_delta", "kimi_linear",
     R"({"layer_types": ["linear_attention", "full_attention", "linear_attention"], "linear_num_heads": 7,
         "linear_head_dim": 5, "num_key_value_heads": 6, "kv_lora_rank": 6, "qk_nope_head_dim": 5,
         "qk_rope_head_dim": 4, "v_head_dim": 3, "num_experts": 4, "num_experts_per_token": 2,
         "moe_intermediate_size": 8})"},
    {"lightning", "minimax",
     R"({"layer_types": ["linear_attention", "full_attention", "linear_attention"], "num_local_experts": 4,
         "intermediate_size": 8, "linear_attn_beta_factor": 0.7, "mlp_alpha_factor": 1.2})"},
    {"linear_recurrence", "recurrent_gemma",
     R"({"lru_width": 30, "attention_window_size": 4, "block_types": ["recurrent", "attention"]})"}};

class MixersContext : public ::testing::TestWithParam<SharedMixerCase> {};
INSTANTIATE_TEST_SUITE_P(Kinds, MixersContext, ::testing::ValuesIn(kSharedMixers),
                         [](const auto& info) { return info.param.name; });

ModelCase shared_case(const SharedMixerCase& mixer) {
  return {.family = mixer.family,
          .layers = 3,
          .heads = 6,
          .key_heads = mixer.family == std::string("kimi_linear") ? 6 : 2,
          .vocabulary = 53,
          .tied = false,
          .tokens = 13,
          .batches = {4, 3},
          .keys = mixer.keys};
}

struct SharedLayout {
  Parallelism how;
  bool packed = false;  // otherwise padded
};

// ulysses_ring has 4 ranks for a sequence, which some models with tensor ranks have too few heads for.
std::vector<SharedLayout> shared_layouts() {
  const std::pair<const char*, int> methods[] = {{"all_gather", 2}, {"ring", 3}, {"ulysses", 2}, {"ulysses_ring", 4}};
  const Parallelism others[] = {
      {},
      {.layout = {.tensor = 2}},
      {.layout = {.tensor = 2}, .sequence_parallel = true},
      {.layout = {.pipeline = 2}, .schedule = "zb_h1", .microbatches = 2},
      {.layout = {.data = 2}, .zero = 3},
  };
  const char* recompute[] = {"none", "full", "parts"};
  std::vector<SharedLayout> all;
  for (const GridRow& row : grid_rows({std::size(methods), std::size(others), std::size(recompute), 2})) {
    Parallelism how = others[row[1]];
    std::tie(how.context_method, how.layout.context) = methods[row[0]];
    if (how.layout.context == 4) how.layout.tensor = 1, how.sequence_parallel = false;
    how.recompute = recompute[row[2]];
    all.push_back({how, row[3] == 0});
  }
  return all;
}

// Each kind runs a fifth of the layouts.
TEST_P(MixersContext, SharedSequencesTrainLikeOneRank) {
  const auto* mine = std::ranges::find(kSharedMixers, std::string(GetParam().name), &SharedMixerCase::name);
  for (const bool packed : {true, false}) {
    ModelCase what = shared_case(GetParam());
    what.packed = packed;
    what.padded = !packed;
    what.first_counted = packed ? 0 : 2;  // padding has no labels
    std::vector<Parallelism> layouts;
    for (SharedLayout& each : turn_of(static_cast<std::size_t>(mine - kSharedMixers) % 5, 5, shared_layouts())) {
      if (what.family == "mamba2") each.how.context_method = "auto";  // no layer has attention
      if (each.packed == packed) layouts.push_back(each.how);
    }
    if (!layouts.empty()) expect_layouts_equal(what, layouts);
  }
}

}  // namespace
}  // namespace gantry::testing
