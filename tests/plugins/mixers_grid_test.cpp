// Models with mixers other than attention over all axes and ZeRO levels, compared with one rank: packed
// documents, padding and groups that ranks share.
#include <gtest/gtest.h>

#include "model_case.h"

namespace gantry::testing {
namespace {

struct MixerCase {
  const char *name, *family, *keys;
};

const MixerCase kMixerCases[] = {
    {"lfm2", "lfm2",
     R"({"layer_types": ["conv", "full_attention", "conv"], "conv_bias": true, "block_multiple_of": 5})"},
    {"mamba2_one_group", "mamba2", R"({"num_heads": 6, "head_dim": 8, "n_groups": 1, "state_size": 5})"},
    {"falcon_h1", "falcon_h1", R"({"mamba_d_ssm": 30, "mamba_n_heads": 6, "mamba_n_groups": 2, "mamba_d_state": 4,
                                   "mamba_rms_norm": true, "mamba_norm_before_gate": false})"},
    {"nemotron_h", "nemotron_h",
     R"({"layers_block_type": ["linear_attention", "moe", "full_attention"], "mamba_num_heads": 6, "mamba_head_dim": 8,
         "n_groups": 2, "ssm_state_size": 5, "head_dim": 6, "n_routed_experts": 4, "num_experts_per_tok": 2,
         "moe_intermediate_size": 11, "moe_shared_expert_intermediate_size": 8})"},
    {"recurrent_gemma", "recurrent_gemma",
     R"({"lru_width": 20, "attention_window_size": 4, "block_types": ["recurrent", "attention"]})"},
    {"jamba", "jamba", R"({"mamba_d_state": 5, "mamba_dt_rank": 4, "attn_layer_period": 3, "attn_layer_offset": 1,
                           "num_experts": 4, "intermediate_size": 11})"}};

class MixersGrid : public ::testing::TestWithParam<MixerCase> {};
INSTANTIATE_TEST_SUITE_P(Kinds, MixersGrid, ::testing::ValuesIn(kMixerCases),
                         [](const auto& info) { return info.param.name; });

ModelCase case_of(const MixerCase& mixer) {
  return {.family = mixer.family,
          .layers = 3,
          .heads = 4,
          .key_heads = 2,
          .vocabulary = 53,
          .batches = {4, 3},
          .keys = mixer.keys};
}

TEST_P(MixersGrid, PackedDocuments) {
  ModelCase what = case_of(GetParam());
  what.packed = true;
  expect_layouts_equal(what, {{.layout = {.tensor = 2}, .microbatches = 2},
                              {.layout = {.tensor = 3}, .sequence_parallel = true, .recompute = "full"},
                              {.layout = {.pipeline = 3, .data = 2}, .schedule = "zb_h1", .microbatches = 2}});
}

TEST_P(MixersGrid, Zero) {
  ModelCase what = case_of(GetParam());
  what.padded = true;
  expect_layouts_equal(what, {{.layout = {.data = 3}, .zero = 1},
                              {.layout = {.data = 2, .tensor = 2}, .sequence_parallel = true, .zero = 2},
                              {.layout = {.data = 2}, .recompute = "parts", .zero = 3},
                              {.layout = {.pipeline = 2, .data = 2, .tensor = 3}, .microbatches = 2, .zero = 3}});
}

}  // namespace
}  // namespace gantry::testing
