// Estimates: the sums of their parts, and their dependence on the layout.
#include "gantry/planner/estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/config.h"
#include "gantry/core/error.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/model_flops.h"

namespace gantry::planner {
namespace {

using ::testing::HasSubstr;

Workload small_llama(std::int64_t batch = 64) {
  return {
      .model = models::decoder_spec(
          "llama",
          {{"hidden_size", 2048}, {"intermediate_size", 5632}, {"num_hidden_layers", 16}, {"num_attention_heads", 16}}),
      .sequence = 2048,
      .batch = batch,
      .precision = "bfloat16",
      .program = gantry_program("bfloat16", {})};
}

Estimate estimated(const Workload& workload, const Layout& layout) {
  return estimate(workload, layout, part_of(load_cluster("h100_80g"), layout.ranks()));
}

TEST(Estimates, PartsAddUpToTheStep) {
  for (const char* schedule : {"1f1b", "gpipe", "interleaved_1f1b", "zb_h1", "zb_v"}) {
    const Layout layout{
        .tensor = 2,
        .pipeline = 4,
        .data = 2,
        .zero = 1,
        .schedule = schedule,
        .chunks = schedule == std::string("interleaved_1f1b") || schedule == std::string("zb_v") ? 2 : 1};
    const Estimate result = estimated(small_llama(), layout);
    EXPECT_NEAR(result.seconds.sum(), result.step_seconds, 1e-12) << schedule;
    EXPECT_NEAR(result.tokens_per_second * result.step_seconds, 64 * 2048, 1e-6) << schedule;
    EXPECT_EQ(result.memory.size(), 4u) << schedule;
    EXPECT_GE(result.seconds.pipeline, 0) << schedule;
    EXPECT_LT(result.mfu, 0.75) << schedule;
    EXPECT_GE(result.step_seconds * (1 + 1e-9),
              least_seconds(small_llama(), layout, part_of(load_cluster("h100_80g"), 16)))
        << schedule;
  }
}

// The memory of P parameters, by the ZeRO formulas.
TEST(Estimates, StatesByZero) {
  const double parameters = models::parameter_count(small_llama().model);  // on every rank
  const double expected[] = {18, 6 + 12.0 / 4, 2 + 16.0 / 4, 16.0 / 4};
  for (int zero = 0; zero < 4; ++zero) {
    const Memory memory = estimated(small_llama(), {.data = 4, .zero = zero}).memory.front();
    EXPECT_NEAR((memory.parameters + memory.gradients + memory.optimizer) / parameters, expected[zero], 1e-9) << zero;
  }
}

// Values and gradients of a layer and the table are unsharded at the same time. The gradient of a tied table exists
// together with those of two layers.
TEST(Estimates, ATiedTablesGradientStandsUnderZero3) {
  const double layer = 4 * 2048.0 * 2048 + 3 * 2048.0 * 5632 + 2 * 2048;
  Workload workload = small_llama(4);
  const Layout layout{.data = 4, .zero = 3};
  const Memory untied = estimated(workload, layout).memory.front();
  workload.model.tied = true;
  EXPECT_NEAR(estimated(workload, layout).memory.front().working - untied.working, 4 * layer, 1);
}

TEST(Estimates, RecomputationTakesTimeAndGivesMemory) {
  double seconds = 0, memory = 1e18;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kParts, Recompute::kFull}) {
    const Estimate result = estimated(small_llama(), {.microbatch = 4, .recompute = recompute});
    EXPECT_GE(result.step_seconds, seconds);
    EXPECT_LT(result.memory.front().activations, memory);
    seconds = result.step_seconds;
    memory = result.memory.front().activations;
  }
}

// Logits above 32 MB are computed in tiles: a larger vocabulary takes time and parameters, but no activations.
TEST(Estimates, LargeLogitsAreNotKept) {
  const auto with_words = [](std::int64_t words, int microbatch) {
    Workload workload = small_llama();
    workload.model.vocabulary = words;
    return estimated(workload, {.microbatch = microbatch});
  };
  const auto temporary = [&](std::int64_t words, int microbatch) {
    const Memory memory = with_words(words, microbatch).memory.front();
    return memory.activations + memory.working;
  };
  EXPECT_EQ(temporary(128000, 4), temporary(32000, 4));
  EXPECT_GT(with_words(128000, 4).step_seconds, 1.2 * with_words(32000, 4).step_seconds);
  // Small ones are kept in float32, and have a gradient.
  EXPECT_NEAR(temporary(8000, 1) - temporary(4000, 1), (4.0 + 2) * 2048 * 4000, 1);
}

// The last stage has the head, the first stage the embedding, and both have a tied table.
TEST(Estimates, StagesHoldWhatIsTheirs) {
  Workload workload = small_llama();
  const auto untied = estimated(workload, {.pipeline = 4}).memory;
  EXPECT_EQ(untied[1].parameters, untied[2].parameters);
  EXPECT_NEAR(untied[0].parameters - untied[1].parameters, 2.0 * 32000 * 2048, 1);
  EXPECT_NEAR(untied[3].parameters - untied[1].parameters, 2.0 * (32000 * 2048 + 2048), 1);
  workload.model.tied = true;
  EXPECT_EQ(estimated(workload, {.pipeline = 4}).memory[3].parameters, untied[3].parameters);
  EXPECT_NEAR(estimated(workload, {}).memory[0].parameters, 2 * models::parameter_count(workload.model),
              1);  // held once
}

TEST(Estimates, UnevenSizesAreCounted) {
  const Workload workload = small_llama(10);
  const Layout layout{.pipeline = 3, .data = 1, .microbatch = 4};  // 16 layers, microbatches of 4, 4, 2
  EXPECT_EQ(layout.microbatches_of(10), 3);
  EXPECT_GT(estimated(workload, layout).step_seconds, 0);
}

std::string objection_of(const Layout& layout, int ranks) {
  return objection(small_llama(), layout, part_of(load_cluster("h100_80g"), ranks)).value_or("none");
}

TEST(Estimates, WhatDoesNotFitIsSaidWithItsArithmetic) {
  EXPECT_EQ(objection_of({.tensor = 2}, 2), "none");
  EXPECT_THAT(objection_of({.tensor = 2}, 4), HasSubstr("= 2 ranks, and 1 host of 4 devices have 4"));
  EXPECT_THAT(objection_of({.tensor = 32}, 32), HasSubstr("tensor 32 is above the 16 heads"));
  EXPECT_THAT(objection_of({.pipeline = 32}, 32), HasSubstr("16 layers"));
  EXPECT_THAT(objection_of({.data = 128}, 128), HasSubstr("64 samples over data 128"));
  EXPECT_THAT(objection_of({.data = 32, .microbatch = 4}, 32), HasSubstr("above the 2 samples of a replica"));
  EXPECT_THAT(objection_of({.data = 2, .expert = 2}, 2), HasSubstr("has no experts"));
  EXPECT_THAT(objection_of({.pipeline = 2, .schedule = "zb_v", .chunks = 3}, 2), HasSubstr("chunks"));
  EXPECT_THROW(estimated(small_llama(), {.tensor = 32}), ConfigError);
}

// With expert ranks, each rank has fewer experts, and tokens are exchanged.
TEST(Estimates, ExpertsAreSharedByRanks) {
  Workload workload = small_llama();
  workload.model = models::decoder_spec("mixtral", {{"hidden_size", 1024},
                                                    {"intermediate_size", 3584},
                                                    {"num_hidden_layers", 4},
                                                    {"num_attention_heads", 16},
                                                    {"num_key_value_heads", 4}});
  const Estimate full = estimated(workload, {.data = 8}), shared = estimated(workload, {.data = 8, .expert = 4});
  const double experts = 4 * 8 * 3 * 1024.0 * 3584;
  EXPECT_NEAR(full.memory[0].parameters - shared.memory[0].parameters, 2 * experts * 3 / 4, 1);
  EXPECT_EQ(full.seconds.expert, 0);
  EXPECT_GT(shared.seconds.expert, 0);
  EXPECT_NEAR(shared.seconds.compute / full.seconds.compute, 1, 1e-9);
  const Estimate sharded = estimated(workload, {.tensor = 4, .data = 2});  // sharded along their width
  EXPECT_GT(sharded.seconds.tensor, 0);
  EXPECT_NEAR(full.memory[0].parameters / sharded.memory[0].parameters, 4, 0.1);
}

// The ring of keys and values is hidden as long as the core takes longer.
TEST(Estimates, ContextSharesASequence) {
  Workload workload = small_llama(8);
  workload.sequence = 32768;
  const Estimate one = estimated(workload, {}), four = estimated(workload, {.context = 4});
  EXPECT_NEAR(four.memory.front().activations / one.memory.front().activations, 0.25, 0.01);
  EXPECT_LT(four.step_seconds, 0.4 * one.step_seconds);
}

// Each efficiency affects only its own operation.
TEST(Estimates, OperationsTakeTheirOwnRates) {
  const auto seconds = [](const char* family, const Layout& layout, const auto& change) {
    const Workload workload{.model = models::decoder_spec(family, nlohmann::json::object()),
                            .sequence = 512,
                            .batch = 4,
                            .precision = "float32",
                            .program = gantry_program("float32", {})};
    Cluster cluster = with_ranks(load_cluster("a100_80g"), layout.ranks(), /*grows=*/true);
    change(cluster);
    return estimate(workload, layout, cluster).seconds;
  };
  const auto slower = [&](const char* family, const char* name) {
    return seconds(family, {}, [&](Cluster& cluster) { cluster.device.operation_efficiency[name] = 0.1; }).compute -
           seconds(family, {}, [](Cluster&) {}).compute;
  };
  EXPECT_GT(slower("llama", "rms_norm"), 0);
  EXPECT_GT(slower("llama", "silu"), 0);
  EXPECT_GT(slower("llama", "loss"), 0);
  EXPECT_EQ(slower("llama", "layer_norm"), 0);
  EXPECT_GT(slower("gpt2", "layer_norm"), 0);
  EXPECT_GT(slower("gpt2", "gelu_new"), 0);
  EXPECT_EQ(slower("gpt2", "gelu"), 0);
  const auto slow_optimizer = [](Cluster& cluster) { cluster.device.optimizer_efficiency = 0.425; };
  EXPECT_NEAR(seconds("gpt2", {}, slow_optimizer).optimizer - seconds("gpt2", {}, [](Cluster&) {}).optimizer,
              seconds("gpt2", {}, [](Cluster&) {}).optimizer - 5e-3, 1e-9);  // half of memory_efficiency
  const auto meets = [](Cluster& cluster) { cluster.meeting_slowdown = 1.5; };
  const Layout split{.tensor = 2};
  const Seconds alone = seconds("gpt2", split, [](Cluster&) {}), waiting = seconds("gpt2", split, meets);
  EXPECT_EQ(waiting.compute, alone.compute);
  EXPECT_GT(waiting.tensor, alone.tensor + 0.2 * alone.compute);
  EXPECT_EQ(seconds("gpt2", {.data = 2}, meets).sum(), seconds("gpt2", {.data = 2}, [](Cluster&) {}).sum());
}

// The context method is the one that is set; auto exchanges heads if the ranks divide them.
TEST(Estimates, ContextCostsWhatItsMethodSends) {
  const Workload workload{.model = models::decoder_spec("llama", nlohmann::json::object()),
                          .sequence = 32768,
                          .batch = 1,
                          .precision = "float32",
                          .program = gantry_program("float32", {})};
  const Cluster cluster = with_ranks(load_cluster("a100_80g"), 2, /*grows=*/true);
  const auto by = [&](const std::string& method) {
    return estimate(workload, {.context = 2, .context_method = method}, cluster).seconds;
  };
  EXPECT_EQ(by("auto").sum(), by("ulysses").sum());
  EXPECT_GT(by("all_gather").compute, 1.1 * by("ulysses").compute);  // the core computes the masked half as well
  EXPECT_NE(by("ring").context, by("ulysses").context);
  EXPECT_THROW(estimate(workload, {.context = 64, .context_method = "ulysses"},
                        with_ranks(load_cluster("a100_80g"), 64, /*grows=*/true)),
               ConfigError);
}

}  // namespace
}  // namespace gantry::planner
