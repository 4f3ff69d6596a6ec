// ZeRO 1 and gradient buckets: the same numbers as one rank, less memory, any optimizer.
#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/comm/launch.h"
#include "gantry/plugins/lion.h"
#include "gantry/tensors/memory_meter.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

std::vector<Parallelism> layouts(int zero) {
  std::vector<Parallelism> all;
  for (const auto& [pipeline, data, tensor] :
       {std::tuple(1, 2, 1), {1, 3, 1}, {2, 2, 1}, {1, 2, 2}, {2, 2, 2}, {3, 2, 1}})
    for (const char* schedule : {"1f1b", "zb_h1"})
      all.push_back({.layout = {.pipeline = pipeline, .data = data, .tensor = tensor},
                     .schedule = schedule,
                     .microbatches = 2,
                     .zero = zero});
  all.push_back({.layout = {.data = 2, .tensor = 2}, .microbatches = 3, .sequence_parallel = true, .zero = zero});
  all.push_back({.layout = {.pipeline = 2, .data = 2},
                 .schedule = "interleaved_1f1b",
                 .microbatches = 2,
                 .chunks = 2,
                 .recompute = "full",
                 .zero = zero});
  all.push_back({.layout = {.data = 4}, .microbatches = 2, .zero = zero});
  return all;
}

TEST(Zero, EveryOptimizerEqualsOneRank) {
  for (const char* optimizer : {"adamw", "sgd", "lion"}) {
    ModelCase what{.layers = 3, .dropout = 0.1};
    what.optimizer = optimizer;
    // Lion steps by signs: an exact zero follows rounding, so its first steps are compared on fewer layouts.
    auto chosen = layouts(1);
    if (what.optimizer == "lion") what.batches = {6};
    expect_layouts_equal(what, chosen);
  }
}

TEST(Zero, TiesKeyHeadsThatRanksShareAndUntiedHeads) {
  for (const bool tied : {false, true}) {
    ModelCase what{.family = "llama", .layers = 3, .heads = 6, .key_heads = 2};
    what.tied = tied;
    expect_layouts_equal(what, {{.layout = {.data = 2, .tensor = 4}, .microbatches = 2, .zero = 1},
                                {.layout = {.pipeline = 3, .data = 2, .tensor = 3}, .microbatches = 2, .zero = 1}});
  }
}

TEST(GradientBuckets, ThatSetOutWhileTheBackwardRunsEqualOneRank) {
  ModelCase what{.layers = 4, .dropout = 0.1};
  expect_layouts_equal(what, layouts(0));
}

// A training step of a model on `data` replicas; the peak of this rank's tensors after boosting, without activations to
// speak of.
std::int64_t peak_bytes(int zero) {
  Config config = layout_config({.data = 4});
  config.model.policy = "gpt2";
  config.model.config_json = R"({"n_layer": 4, "n_head": 4, "n_embd": 128, "vocab_size": 64, "n_positions": 8})";
  config.parallel.zero = zero;
  std::int64_t peak = 0;
  EXPECT_EQ(launch(config,
                   [&](World& world) {
                     const MemoryMeter meter;
                     auto* plugin = new HybridParallelPlugin(world, config);
                     Booster booster{std::unique_ptr<Plugin>(plugin)};
                     auto model = build_model(config);
                     auto boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy());
                     const torch::Tensor ids = torch::arange(8).view({1, 8});
                     for (int step = 0; step < 2; ++step) {
                       booster.execute_pipeline(make_batch({{"input_ids", ids}, {"labels", ids}}), boosted);
                       boosted.optimizer->step();
                       boosted.optimizer->zero_grad();
                     }
                     boosted.optimizer->wait();
                     if (world.is_main()) peak = meter.bytes();
                   }),
            0);
  return peak;
}

TEST(Zero, OptimizerStateIsDealtOverReplicas) {
  constexpr std::int64_t kParameters = 4 * (12 * 128 * 128 + 13 * 128) + (64 + 8 + 2) * 128;
  const auto whole = peak_bytes(0), dealt = peak_bytes(1);
  // Two float32 moments a parameter: three quarters of them are on the other replicas.
  EXPECT_NEAR(static_cast<double>(whole - dealt), 0.75 * 8 * kParameters, 0.03 * 8 * kParameters);
}

}  // namespace
}  // namespace gantry::testing
