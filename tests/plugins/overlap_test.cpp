// The trace of a step shows that communication is launched while there is still work to hide it.
#include <algorithm>
#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/profiling/profiler.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

// Rank 0's trace of one step of a small GPT-2 on two replicas, after a warm-up step.
Profile traced_step(int zero, int pipeline, int chunks = 1) {
  Config config = layout_config({.pipeline = pipeline, .data = 2});
  config.model.policy = "gpt2";
  config.model.config_json =
      R"({"n_layer": 4, "n_head": 2, "n_embd": 64, "vocab_size": 64, "n_positions": 8, "tie_word_embeddings": false})";
  config.schedule.name = chunks > 1 ? "interleaved_1f1b" : "1f1b";
  config.schedule.chunks = chunks;
  config.parallel.zero = zero;
  config.parallel.bucket_mb = 0.05;  // several buckets per layer
  Profile traced;
  EXPECT_EQ(start_ranks()(config,
                          [&](World& world) {
                            auto plugin = std::make_unique<HybridParallelPlugin>(world, config);
                            ProcessGroup& ranks = plugin->mesh().world_group();
                            Booster booster{std::move(plugin)};
                            auto model = build_model(config);
                            auto boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy());
                            const torch::Tensor ids = torch::arange(16).view({2, 8});
                            Profiler profiler(
                                {.wait = 0, .warmup = 1, .active = 1},
                                [&](const Profile& profile) {
                                  if (world.is_main()) traced = profile;
                                },
                                [&] { ranks.barrier().wait(); });
                            for (int step = 0; step < 2; ++step) {
                              booster.execute_pipeline(make_batch({{"input_ids", ids}, {"labels", ids}}), boosted);
                              boosted.optimizer->step();
                              boosted.optimizer->zero_grad();
                              profiler.step();
                            }
                          }),
            0);
  return traced;
}

std::vector<double> starts_of(const Profile& profile, const std::string& part) {
  std::vector<double> starts;
  for (const auto& one : profile.operators)
    if (one.name.find(part) != std::string::npos) starts.push_back(one.start);
  return starts;
}

TEST(Overlap, TheFirstBucketIsReducedBeforeTheLastBackwardEnds) {
  for (const int zero : {0, 1, 2})
    for (const int pipeline : {1, 2}) {
      const Profile profile = traced_step(zero, pipeline);
      const auto reductions = starts_of(profile, zero == 0 ? "gantry::all_reduce" : "gantry::reduce_scatter");
      const auto backwards = starts_of(profile, "NativeLayerNormBackward");
      const std::string label = "zero " + std::to_string(zero) + " pp " + std::to_string(pipeline);
      ASSERT_GT(reductions.size(), 4u) << label;
      ASSERT_GE(backwards.size(), 2u) << label;
      EXPECT_LT(reductions.front(), backwards.back()) << label;
    }
}

TEST(Overlap, AForwardBeginsBeforeTheValuesOfLaterStagesAreThere) {
  const Profile profile = traced_step(1, 1, 2);
  const auto forwards = starts_of(profile, "aten::native_layer_norm");
  const auto backwards = starts_of(profile, "NativeLayerNormBackward"), waits = starts_of(profile, "gantry::wait");
  ASSERT_FALSE(forwards.empty() || backwards.empty());
  // There is one rank along tp and pp, so a forward can only wait for parameter values.
  EXPECT_TRUE(std::any_of(waits.begin(), waits.end(), [&](double wait) { return wait < forwards.front(); }));
  EXPECT_TRUE(std::any_of(waits.begin(), waits.end(),
                          [&](double wait) { return wait > forwards.front() && wait < backwards.front(); }));
}

}  // namespace
}  // namespace gantry::testing
