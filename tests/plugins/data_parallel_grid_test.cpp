// Replicas, ZeRO, schedules and accumulation together give one rank's numbers in float64.
#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/tensors/libtorch.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

// Tied embeddings, unevenly ignored labels, and a last batch that leaves replicas fewer samples or none.
TEST(DataParallelGrid, EqualsOneRank) {
  expect_layouts_equal({.layers = 4}, layout_grid({.tensor = {1, 2},
                                                   .pipeline = {1, 2},
                                                   .data = {1, 2, 4},
                                                   .schedules = {"1f1b", "zb_h1", "interleaved_1f1b"},
                                                   .accumulation = {1, 3},
                                                   .zero = {0, 1, 2}}));
}

TEST(DataParallelGrid, SequenceParallelRecomputeAndDropout) {
  const ModelCase what{.layers = 4, .dropout = 0.1};
  std::vector<Parallelism> layouts;
  for (const int zero : {0, 1, 2})
    for (const char* recompute : {"selective", "full"})
      layouts.push_back({.layout = {.pipeline = 2, .data = 2, .tensor = 2},
                         .microbatches = 2,
                         .sequence_parallel = true,
                         .recompute = recompute,
                         .zero = zero,
                         .accumulation = 2});
  expect_layouts_equal(what, layouts);
}

// The input embedding of the first stage and the output layer of the last one are one parameter.
TEST(DataParallelGrid, BothEndsOfATieHoldTheSameBitsAfterEveryStep) {
  for (const int zero : {0, 1, 2}) {
    Config config = layout_config({.pipeline = 2, .data = 2});
    config.model.policy = "gpt2";
    config.model.config_json = R"({"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 37, "n_positions": 6})";
    config.parallel.zero = zero;
    EXPECT_EQ(start_ranks()(config,
                            [&](World& world) {
                              auto* plugin = new HybridParallelPlugin(world, config);
                              Booster booster{std::unique_ptr<Plugin>(plugin)};
                              auto model = build_model(config);
                              auto boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy());
                              torch::Tensor tied;
                              for (const auto& [placement, tensor] : boosted.model->stage_module().parameters)
                                if (placement.stages.size() > 1) tied = tensor;
                              ASSERT_TRUE(tied.defined());
                              const torch::Tensor first = tied.detach().clone();
                              for (int step = 0; step < 3; ++step) {
                                const torch::Tensor ids = (torch::arange(12).view({2, 6}) * (step + 2)) % 37;
                                booster.execute_pipeline(make_batch({{"input_ids", ids}, {"labels", ids}}), boosted);
                                boosted.optimizer->step();
                                boosted.optimizer->zero_grad();
                                boosted.optimizer->wait();
                                torch::Tensor largest = tied.detach().clone();
                                plugin->mesh().world_group().all_reduce(largest, ReduceOp::kMax).wait();
                                EXPECT_TRUE(torch::equal(largest, tied)) << "zero " << zero << " step " << step;
                              }
                              EXPECT_FALSE(torch::equal(first, tied));
                            }),
              0);
  }
}

}  // namespace
}  // namespace gantry::testing
