// Behaviour that users of other frameworks rely on: the
// calls that a boosted model accepts, and their results.

#include <torch/nn/functional/loss.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "tiny_rig.h"

namespace gantry::testing {
namespace {

TEST(Acceptance, D10MissingInputsAreNamed) {
  ::testing::internal::CaptureStderr();
  const Config config = tiny({.pipeline = 2});
  EXPECT_EQ(start_ranks()(
                config,
                [&](World& world) {
                  Rig rig(world, config);
                  rig.booster.execute_pipeline(make_batch({{"ids", torch::zeros({4, 5}, torch::kInt64)}}), rig.boosted);
                }),
            4);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("there is no entry 'input_ids' in {ids: int64 [2, 5]}"),
            std::string::npos);
}

TEST(Acceptance, D12StepReturnsLossAndOutputsOnTheLastStage) {
  const Config config = tiny({.pipeline = 2, .tensor = 2});
  const TensorDict full = on_layout<TensorDict>(tiny({}), [&](World& world) {
    Rig rig(world, tiny({}), cross_entropy(), /*optimize=*/false);
    return rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted, {.return_outputs = true}).outputs;
  });
  EXPECT_EQ(start_ranks()(config,
                          [&](World& world) {
                            Rig rig(world, config, cross_entropy(), /*optimize=*/false);  // no optimizer: forwards only
                            const auto result = rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted,
                                                                             {.return_outputs = true});
                            EXPECT_EQ(result.loss.has_value(), rig.plugin->stages().holds_last());
                            EXPECT_EQ(result.outputs.contains("logits"), rig.plugin->stages().holds_last());
                            if (rig.plugin->stages().holds_last()) expect_close(full, result.outputs);
                            const auto everywhere = rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted,
                                                                                 {.broadcast_loss = true});
                            EXPECT_TRUE(everywhere.loss.has_value());
                            const auto silent =
                                rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted, {.return_loss = false});
                            EXPECT_FALSE(silent.loss.has_value());
                          }),
            0);
}

TEST(Acceptance, D17ABoostedModelRunsThroughExecutePipelineOnly) {
  const Config config = tiny({});
  EXPECT_EQ(start_ranks()(config,
                          [&](World& world) {
                            Rig rig(world, config);
                            for (const bool forward : {true, false}) {
                              try {
                                if (forward) rig.boosted.model->forward(tokens(2));
                                if (!forward) rig.boosted.model->backward(torch::ones({1}));
                                ADD_FAILURE();
                              } catch (const UsageError& error) {
                                EXPECT_NE(std::string(error.what()).find("execute_pipeline"), std::string::npos);
                              }
                            }
                          }),
            0);
}

TEST(Acceptance, D18NoSyncCallsAddUpToOneBigBatch) {
  const auto full = [](const Layout& layout) {
    const Config config = tiny(layout);
    return on_layout<TensorDict>(config, [&](World& world) {
      Rig rig(world, config);
      TensorDict all = tokens(8);
      rig.booster.execute_pipeline(rig.batch(all), rig.boosted);
      return rig.gradients();
    });
  };
  const TensorDict expected = full({});
  for (const Layout& layout : {Layout{}, Layout{.data = 2}, Layout{.pipeline = 2, .tensor = 2}}) {
    const Config config = tiny(layout);
    EXPECT_EQ(start_ranks()(config,
                            [&](World& world) {
                              Rig rig(world, config);
                              const auto part = [&](std::int64_t begin, std::int64_t count) {
                                TensorDict piece;
                                for (const auto& [name, tensor] : tokens(8))
                                  piece.set(name, tensor.narrow(0, begin, count));
                                return rig.batch(piece);
                              };
                              {
                                const auto guard = rig.booster.no_sync();
                                rig.booster.execute_pipeline(part(0, 2), rig.boosted);
                                rig.booster.execute_pipeline(part(2, 4), rig.boosted);
                                EXPECT_THROW(rig.boosted.optimizer->step(), UsageError);
                              }
                              rig.booster.execute_pipeline(part(6, 2), rig.boosted);
                              expect_close(expected, rig.gradients());
                              // After a sync, without zero_grad: a second batch is added, and nothing is reduced twice.
                              rig.booster.execute_pipeline(rig.batch(tokens(8)), rig.boosted);
                              for (const auto& [name, tensor] : rig.gradients())
                                EXPECT_LE((tensor - 2 * expected.at(name)).abs().max().item<double>(), 1e-9) << name;
                              rig.boosted.optimizer->zero_grad();
                              {
                                const auto guard = rig.booster.no_sync();
                                rig.booster.execute_pipeline(rig.batch(tokens(8)), rig.boosted);
                              }
                              rig.booster.sync_gradients(rig.boosted);
                              expect_close(expected, rig.gradients());
                            }),
              0);
  }
}

TEST(Acceptance, D19ForwardOnlyPipelinesServeGeneration) {
  const Config config = tiny({.pipeline = 2});
  EXPECT_EQ(
      start_ranks()(config,
                    [&](World& world) {
                      Rig rig(world, config);
                      for (const std::int64_t length : {1, 3, 5}) {  // the prompt grows: shapes change
                        const Batch batch = make_batch({{"input_ids", torch::ones({1, length}, torch::kInt64)},
                                                        {"labels", torch::full({1, length}, -100)}});
                        const auto result = rig.booster.execute_pipeline(
                            batch, rig.boosted, {.return_loss = false, .return_outputs = true, .forward_only = true});
                        if (rig.plugin->stages().holds_last())
                          EXPECT_EQ(result.outputs.at("logits").sizes(), (std::vector<std::int64_t>{1, length, 29}));
                      }
                    }),
      0);
}

TEST(Booster, AUsersOwnOptimizerAndPlainCriterionTrainIdentically) {
  const auto mean = [](const TensorDict& outputs, const TensorDict& batch) {
    return torch::nn::functional::cross_entropy(outputs.at("logits").flatten(0, 1), batch.at("labels").flatten());
  };
  const auto weights = [&](const Layout& layout) {
    const Config config = tiny(layout);
    return on_layout<TensorDict>(config, [&](World& world) {
      auto* plugin = new HybridParallelPlugin(world, config);
      Booster booster{std::unique_ptr<Plugin>(plugin)};
      auto model = build_model(config);
      auto optimizer =
          std::make_shared<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      auto boosted = booster.boost(model, optimizer, mean);
      for (int step = 0; step < 3; ++step) {
        booster.execute_pipeline(make_batch(tokens(4, step)), boosted);
        boosted.optimizer->step();
        boosted.optimizer->inner().zero_grad();  // instead of boosted.optimizer->zero_grad()
      }
      return gather_tensors(boosted.model->stage_module(), plugin->stages(), plugin->mesh(),
                            [&](std::size_t i) { return boosted.model->stage_module().parameters[i].tensor; });
    });
  };
  const TensorDict dense = weights({});
  expect_close(dense, weights({.tensor = 2}), 1e-9);
  expect_close(dense, weights({.pipeline = 3}), 1e-9);
}

TEST(Booster, AnOptimizerThatHasSteppedIsRefused) {
  const Config config = tiny({});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(start_ranks()(config,
                          [&](World& world) {
                            auto* plugin = new HybridParallelPlugin(world, config);
                            Booster booster{std::unique_ptr<Plugin>(plugin)};
                            torch::nn::Linear other(2, 2);
                            auto optimizer = std::make_shared<torch::optim::Adam>(other->parameters());
                            other(torch::ones({1, 2})).sum().backward();
                            optimizer->step();
                            booster.boost(build_model(config), optimizer);
                          }),
            2);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("already has state for 2 parameters"), std::string::npos);
}

}  // namespace
}  // namespace gantry::testing
