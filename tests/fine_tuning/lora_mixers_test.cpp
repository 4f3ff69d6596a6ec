// Adapters of all linear layers of mixers, in every layout compared with one rank.
#include <gtest/gtest.h>

#include "lora_rig.h"

namespace gantry::testing {
namespace {

struct AdaptedMixer {
  const char *family, *keys;
};

class LoraMixers : public ::testing::TestWithParam<AdaptedMixer> {};
INSTANTIATE_TEST_SUITE_P(
    Kinds, LoraMixers,
    ::testing::Values(
        AdaptedMixer{"lfm2", R"({"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                                 "hidden_size": 24, "intermediate_size": 26, "block_multiple_of": 5, "vocab_size": 31,
                                 "max_position_embeddings": 8, "layer_types": ["conv", "full_attention"]})"},
        AdaptedMixer{"mamba2", R"({"num_hidden_layers": 2, "hidden_size": 24, "vocab_size": 31, "num_heads": 6,
                                   "head_dim": 8, "n_groups": 2, "state_size": 5})"},
        AdaptedMixer{"mamba", R"({"num_hidden_layers": 2, "hidden_size": 24, "vocab_size": 31, "state_size": 5})"}),
    [](const auto& info) { return info.param.family; });

TEST_P(LoraMixers, EveryLayoutHasOneRanksNumbers) {
  const auto config_in = [&](const LoraLayout& how) {
    return parts_config(GetParam().family, GetParam().keys, {"all-linear"}, how);
  };
  const LoraRun one = run_lora(config_in({}));
  EXPECT_NE(one.losses[0], one.losses[2]);
  const std::vector<LoraLayout> layouts = {
      {.layout = {.tensor = 2}},
      {.layout = {.tensor = 3}, .sequence_parallel = true},
      {.layout = {.pipeline = 2, .data = 2}, .zero = 1},
      {.layout = {.data = 2, .tensor = 2}, .sequence_parallel = true, .zero = 3, .recompute = "full"}};
  for (const auto& how : layouts) {
    expect_same_run(one, run_lora(config_in(how)), describe(how));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace gantry::testing
