// Experts over ranks give the numbers of one rank: every family with experts, with the other axes, router
// losses and expert bias.
#include <gtest/gtest.h>

#include "expert_families.h"
#include "model_case.h"
#include "program.h"

namespace gantry::testing {
namespace {

constexpr const char* kMixtralKeys = R"({"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 11})";

ModelCase case_with_experts(const char* family, const char* keys) {
  ModelCase what{
      .family = family, .layers = 2, .heads = 4, .key_heads = 2, .vocabulary = 53, .tokens = 8, .batches = {5, 4}};
  what.keys = keys;
  return what;
}

Parallelism spread(Layout layout, int microbatches = 1, int zero = 0) {
  return {.layout = layout, .microbatches = microbatches, .sequence_parallel = layout.tensor > 1, .zero = zero};
}

Parallelism recomputed(Parallelism how, const char* recompute, const char* schedule = "1f1b") {
  how.recompute = recompute;
  how.schedule = schedule;
  return how;
}

// Covers every pair of values of two axes.
std::vector<Parallelism> pairwise() {
  return {spread({.data = 2, .expert = 2}, 2, 1),
          spread({.tensor = 2, .expert = 2}, 2),
          spread({.context = 2, .expert = 2}, 1, 2),
          spread({.data = 3, .expert = 3}, 5, 2),
          spread({.data = 3, .tensor = 2, .expert = 3}, 1, 1),
          spread({.data = 2, .tensor = 2, .expert = 4}, 1, 2),
          spread({.data = 2, .tensor = 2, .context = 2, .expert = 4}, 2, 1),
          recomputed(spread({.pipeline = 2, .data = 2, .expert = 2}, 2, 2), "full"),
          recomputed(spread({.pipeline = 2, .tensor = 2, .expert = 2}, 5), "parts", "zb_h1"),
          recomputed(spread({.pipeline = 2, .data = 2, .context = 2, .expert = 2}, 1, 1), "selective")};
}

TEST(ExpertGrid, Mixtral) { expect_layouts_equal(case_with_experts("mixtral", kMixtralKeys), pairwise()); }

TEST(ExpertGrid, TheOtherDispatcher) {
  std::vector<Parallelism> layouts = {spread({.data = 2, .expert = 2}, 2), spread({.tensor = 2, .expert = 2}),
                                      spread({.pipeline = 2, .data = 2, .expert = 2}, 2, 1)};
  for (auto& how : layouts) how.dispatch = "all_gather";
  expect_layouts_equal(case_with_experts("mixtral", kMixtralKeys), layouts);
}

TEST(ExpertGrid, EveryFamilyAndNumberOfExperts) {
  const std::pair<const char*, const char*> families[] = {
      {"mixtral", R"({"num_local_experts": 5, "num_experts_per_tok": 4, "intermediate_size": 11})"},
      {"qwen2_moe", kQwen2MoeKeys},
      {"qwen3_moe", R"({"num_experts": 4, "num_experts_per_tok": 1, "head_dim": 6, "moe_intermediate_size": 7})"},
      {"gpt_oss", kGptOssKeys},
      {"deepseek_v3", kDeepseekKeys},
      {"ernie4_5_moe",
       R"({"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 7, "moe_num_shared_experts": 1})"},
      {"nemotron_h", R"({"layers_block_type": ["moe", "full_attention"], "head_dim": 6, "n_routed_experts": 5,
                         "num_experts_per_tok": 2, "moe_intermediate_size": 7,
                         "moe_shared_expert_intermediate_size": 8})"}};
  for (const auto& [family, keys] : families) {
    SCOPED_TRACE(family);
    expect_layouts_equal(case_with_experts(family, keys),
                         {spread({.data = 2, .expert = 2}, 2), spread({.tensor = 2, .expert = 2}, 1),
                          recomputed(spread({.pipeline = 2, .data = 2, .expert = 2}, 2, 1), "full")});
    if (::testing::Test::HasFailure()) return;
  }
}

// Weights on the inputs of experts, and chunked attention.
TEST(ExpertGrid, LlamaFour) {
  ModelCase what = case_with_experts("llama4_text", R"({"num_local_experts": 5, "num_experts_per_tok": 2, "head_dim": 6,
      "intermediate_size": 7, "intermediate_size_mlp": 11, "attention_chunk_size": 3, "no_rope_layer_interval": 2})");
  expect_layouts_equal(what, pairwise());
  Parallelism both_ways = spread({.pipeline = 2, .data = 2, .expert = 2}, 4);
  both_ways.schedule = "dualpipe_v";
  both_ways.chunks = 2;
  what.layers = 4;
  expect_layouts_equal(what, {both_ways});
}

// One of the two stages has no layer with experts.
TEST(ExpertGrid, AStageWithoutExperts) {
  ModelCase what = case_with_experts("deepseek_v3", kDeepseekKeys);
  for (const char* schedule : {"gpipe", "interleaved_1f1b", "zb_v", "dualpipe_v"}) {
    what.layers = 4;
    what.keys = std::string(kDeepseekKeys).replace(std::string(kDeepseekKeys).rfind("1}"), 2, "2}");
    expect_layouts_equal(what, {[&] {
                           Parallelism how = spread({.pipeline = 2, .data = 2, .expert = 2}, 4);
                           how.schedule = schedule;
                           how.chunks = std::string(schedule) == "gpipe" ? 1 : 2;
                           return how;
                         }()});
    if (::testing::Test::HasFailure()) return;
  }
}

// Some replicas have one sample or none, while others have several.
TEST(ExpertGrid, ReplicasWithoutSamples) {
  ModelCase what = case_with_experts("mixtral", kMixtralKeys);
  what.batches = {2, 3, 1};
  expect_layouts_equal(what, {spread({.data = 3, .expert = 3}, 2), spread({.data = 4, .expert = 2}, 2, 2),
                              spread({.pipeline = 2, .data = 3, .expert = 3}, 2)});
}

// Outputs at padded positions depend on the attention kernel,
// and so on the layout. Therefore their labels do not count.
ModelCase case_with_losses(bool padded) {
  ModelCase what = case_with_experts("qwen3_moe", R"({"num_experts": 6, "num_experts_per_tok": 2, "head_dim": 6,
                                                      "moe_intermediate_size": 7})");
  what.padded = padded;
  what.first_counted = padded ? 2 : 0;
  what.experts = {.balance = "sequence", .aux_loss = 0.7, .z_loss = 0.05};
  return what;
}

TEST(ExpertGrid, LossesOfRouters) {
  for (const bool padded : {false, true}) {
    expect_layouts_equal(case_with_losses(padded),
                         {spread({.data = 2, .expert = 2}, 2),
                          spread({.tensor = 2, .expert = 2}, 5),
                          spread({.context = 2, .expert = 2}, 1),
                          spread({.tensor = 2}, 2),
                          {.layout = {.tensor = 2}, .microbatches = 2},
                          recomputed(spread({.pipeline = 2, .data = 3, .expert = 3}, 2, 1), "full")});
    if (::testing::Test::HasFailure()) return;
  }
}

// Counts are reduced over all ranks that share a sequence, along either axis.
TEST(ExpertGrid, LossesOfRoutersWithContextAndTensor) {
  for (const bool padded : {false, true}) {
    Parallelism ring = spread({.tensor = 2, .context = 2, .expert = 4}, 1);
    ring.context_method = "ring";
    expect_layouts_equal(case_with_losses(padded),
                         {spread({.tensor = 2, .context = 2, .expert = 2}, 1),
                          spread({.tensor = 2, .context = 2, .expert = 4}, 2),
                          ring,
                          {.layout = {.tensor = 2, .context = 2}, .microbatches = 2},
                          recomputed(spread({.pipeline = 2, .tensor = 2, .context = 2, .expert = 2}, 2), "full")});
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(ExpertGrid, LossesOfRoutersWithRecomputedParts) {
  for (const bool padded : {false, true}) {
    expect_layouts_equal(case_with_losses(padded),
                         {recomputed({}, "parts"), recomputed(spread({.data = 2, .expert = 2}, 2), "parts"),
                          recomputed(spread({.tensor = 2, .expert = 2}, 5), "parts"),
                          recomputed(spread({.tensor = 2, .context = 2, .expert = 4}, 2), "parts"),
                          recomputed(spread({.pipeline = 2, .data = 2, .expert = 2}, 2, 1), "parts", "zb_h1")});
    if (::testing::Test::HasFailure()) return;
  }
}

// All layouts have the same microbatches: four on one rank, or four over all replicas.
TEST(ExpertGrid, TheLossOfMicrobatches) {
  ModelCase what = case_with_experts("mixtral", kMixtralKeys);
  what.batches = {4, 4};
  what.experts = {.balance = "microbatch", .aux_loss = 0.7};
  const CaseResult expected = run_case(what, spread({}, 4), "local");
  for (const auto& how : {spread({.data = 2, .expert = 2}, 2), spread({.context = 2, .expert = 2}, 4),
                          recomputed(spread({.pipeline = 2, .data = 4, .expert = 4}, 1), "full")})
    expect_equal(expected, run_case(what, how), 1e-10, describe(how));
}

TEST(ExpertGrid, Corrections) {
  ModelCase what = case_with_experts("deepseek_v3", kDeepseekKeys);
  what.padded = true;
  what.experts = {.balance = "sequence", .aux_loss = 0.01, .bias_update = 0.02};
  expect_layouts_equal(what, {spread({.data = 2, .expert = 2}, 2, 1), spread({.tensor = 2, .expert = 2}, 5),
                              spread({.context = 2, .expert = 2}, 1),
                              recomputed(spread({.pipeline = 2, .data = 2, .expert = 2}, 2), "full")});
}

TEST(ExpertGrid, RecomputationGivesTheSameBits) {
  ModelCase what = case_with_experts("mixtral", R"({"num_local_experts": 6, "num_experts_per_tok": 1,
                                                    "intermediate_size": 11})");
  what.optimizer = "sgd";
  what.clip = 1e9;
  const Layout layout{.data = 2, .tensor = 2, .expert = 4};
  const CaseResult plain = run_case(what, spread(layout, 2));
  for (const char* recompute : {"full", "parts", "selective"})
    expect_identical(plain, run_case(what, recomputed(spread(layout, 2), recompute)), recompute);
}

// Every 41st layout, or all of them under GANTRY_LONG=1.
TEST(ExpertGrid, AllAxes) {
  std::vector<Parallelism> all, layouts;
  for (const int tensor : {1, 2})
    for (const int context : {1, 2})
      for (const int pipeline : {1, 2})
        for (const int data : {1, 2, 3})
          for (const int expert : {1, 2, 3, 4})
            for (const int zero : {0, 1, 2})
              for (const int microbatches : {1, 2, 5})
                if (tensor * context * data % expert == 0 && tensor * context * pipeline * data <= 8)
                  all.push_back(spread(
                      {.pipeline = pipeline, .data = data, .tensor = tensor, .context = context, .expert = expert},
                      microbatches, zero));
  for (std::size_t i = 0; i < all.size(); i += is_long_form() ? 1 : 41) layouts.push_back(all[i]);
  ModelCase what = case_with_experts("mixtral", kMixtralKeys);
  what.experts = {.balance = "sequence", .aux_loss = 0.3, .z_loss = 0.05};
  expect_layouts_equal(what, layouts);
}

}  // namespace
}  // namespace gantry::testing
