// Behaviour that users of other frameworks rely on: the numbers of a training step.
#include <limits>

#include "gantry/core/error.h"
#include "gantry/models/decoder.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/optimizers/gradient_norm.h"
#include "gantry/tensors/libtorch.h"
#include "tiny_rig.h"

namespace gantry::testing {
namespace {

TEST(Acceptance, A9AttentionWithUnevenHeadsEqualsDense) {
  const auto gradients = [](const Layout& layout) {
    const Config config = tiny(layout);
    return on_layout<TensorDict>(config, [&](World& world) {
      Rig rig(world, config);
      rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted);
      return rig.gradients();
    });
  };
  const TensorDict dense = gradients({});
  for (const int tensor : {2, 3}) expect_close(dense, gradients({.tensor = tensor}));
  ::testing::internal::CaptureStderr();
  const Config config = tiny({.tensor = 4});
  EXPECT_EQ(start_ranks()(config, [&](World& world) { Rig rig(world, config); }), 3);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("parallel.tensor: 4 ranks for 3 query heads"),
            std::string::npos);
}

TEST(Acceptance, A11GradientNormsAndClippingEqualDense) {
  const auto norms = [](const Layout& layout) {
    const Config config = tiny(layout);
    return on_layout<std::vector<double>>(config, [&](World& world) {
      Rig rig(world, config);
      rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted);
      auto& optimizer = *rig.boosted.optimizer;
      std::vector<double> all = {optimizer.grad_norm(2), optimizer.grad_norm(std::numeric_limits<double>::infinity()),
                                 optimizer.grad_norm(3)};
      all.push_back(optimizer.clip_grad_norm(0.1));
      all.push_back(optimizer.grad_norm());  // after clipping
      all.push_back(optimizer.clip_grad_norm(1e9));
      all.push_back(optimizer.grad_norm());  // not scaled up
      return all;
    });
  };
  const auto dense = norms({});
  EXPECT_NEAR(dense[4], 0.1 * dense[0] / (dense[0] + 1e-6), 1e-12);
  EXPECT_EQ(dense[5], dense[6]);
  for (const Layout& layout :
       {Layout{.tensor = 2}, Layout{.pipeline = 3}, Layout{.data = 2}, Layout{.pipeline = 2, .data = 2, .tensor = 2}}) {
    const auto split = norms(layout);
    for (std::size_t i = 0; i < dense.size(); ++i) EXPECT_NEAR(split[i], dense[i], kTolerance * dense[i]) << i;
  }
}

TEST(Acceptance, A12DataAndTensorParallelStepsEqualTheUnionBatch) {
  const auto weights = [](const Layout& layout) {
    const Config config = tiny(layout);
    return on_layout<TensorDict>(config, [&](World& world) {
      Rig rig(world, config);
      for (int step = 0; step < 3; ++step) {
        rig.booster.execute_pipeline(rig.batch(tokens(4, step)), rig.boosted);
        rig.boosted.optimizer->step();
        rig.boosted.optimizer->zero_grad();
      }
      return rig.weights();
    });
  };
  expect_close(weights({}), weights({.data = 2, .tensor = 2}), 1e-9);
}

TEST(Acceptance, A13LossIsTheMeanOverAllCountedTokens) {
  TensorDict batch = tokens(4);
  batch.at("labels")[0].fill_(-100);
  batch.at("labels")[3][1] = -100;
  const auto losses = [&](const Layout& layout) {
    const Config config = tiny(layout);
    return on_layout<std::pair<double, std::int64_t>>(config, [&](World& world) {
      Rig rig(world, config);
      const auto result = rig.booster.execute_pipeline(rig.batch(batch), rig.boosted, {.broadcast_loss = true});
      return std::pair(*result.loss, result.tokens);
    });
  };
  const auto dense = losses({});
  EXPECT_EQ(dense.second, 14);
  const auto split = losses({.pipeline = 2, .data = 2});
  EXPECT_EQ(split.second, 14);
  EXPECT_NEAR(split.first, dense.first, kTolerance);
}

TEST(Acceptance, D7TiedCopiesStayEqualToTheBitForAHundredSteps) {
  const Config config = tiny({.pipeline = 4});
  EXPECT_EQ(
      start_ranks()(config,
                    [&](World& world) {
                      Rig rig(world, config);
                      for (int step = 0; step < 100; ++step) {
                        rig.booster.execute_pipeline(rig.batch(tokens(4, step)), rig.boosted);
                        rig.boosted.optimizer->step();
                        rig.boosted.optimizer->zero_grad();
                      }
                      ProcessGroup& pipeline = rig.plugin->mesh()["pp"];
                      torch::Tensor copy = torch::zeros({29, 12}, torch::dtype(torch::kFloat64).device(world.device()));
                      for (const auto& held : rig.boosted.model->stage_module().parameters)
                        if (held.placement.name == "wte.weight") copy = held.tensor.detach().clone();
                      const torch::Tensor mine = copy.clone();
                      pipeline.broadcast(copy, 0).wait();
                      if (pipeline.rank() == 3) EXPECT_TRUE(torch::equal(mine, copy));
                    }),
      0);
}

TEST(Acceptance, D8ModelsBuiltWithValuesStartFromRankZeros) {
  const Config config = tiny({.pipeline = 2, .data = 2});
  EXPECT_EQ(
      start_ranks()(config,
                    [&](World& world) {
                      auto* plugin = new HybridParallelPlugin(world, config);
                      Booster booster{std::unique_ptr<Plugin>(plugin)};
                      models::Decoder model(models::decoder_spec("gpt2", {{"n_layer", 2},
                                                                          {"n_embd", 12},
                                                                          {"n_head", 3},
                                                                          {"vocab_size", 29},
                                                                          {"n_positions", 5}}));  // differs by rank
                      {
                        const torch::NoGradGuard no_grad;
                        for (auto& parameter : model->parameters()) parameter.add_(world.rank());
                      }
                      auto boosted = booster.boost(model);
                      for (const auto& held : boosted.model->stage_module().parameters) {
                        torch::Tensor other = held.tensor.detach().clone();
                        plugin->mesh()["dp"].broadcast(other, 0).wait();
                        EXPECT_TRUE(torch::equal(other, held.tensor)) << held.placement.name;
                        if (held.placement.name.ends_with("ln_1.weight")) EXPECT_EQ(held.tensor[0].item<float>(), 1);
                      }
                    }),
      0);
}

TEST(Acceptance, D15UnevenMicrobatchesWeighByTheirCounts) {
  const auto gradients = [](const Layout& layout, int microbatches) {
    const Config config = tiny(layout, microbatches);
    return on_layout<TensorDict>(config, [&](World& world) {
      Rig rig(world, config);
      rig.booster.execute_pipeline(rig.batch(tokens(7)), rig.boosted);
      return rig.gradients();
    });
  };
  const TensorDict dense = gradients({}, 1);
  for (const int microbatches : {2, 3, 5, 7, 20}) expect_close(dense, gradients({.pipeline = 2}, microbatches));
  EXPECT_THROW(make_batch({{"a", torch::ones({3})}, {"b", torch::ones({2})}}), InputError);
}

TEST(Acceptance, D16GradientsAreThoseOfTheMeanOverCountedTokens) {
  TensorDict batch = tokens(6);
  batch.at("labels").narrow(0, 0, 2).fill_(-100);  // no label of the first two samples counts
  const auto gradients = [&](const Layout& layout, int microbatches) {
    const Config config = tiny(layout, microbatches);
    return on_layout<TensorDict>(config, [&](World& world) {
      Rig rig(world, config);
      rig.booster.execute_pipeline(rig.batch(batch), rig.boosted);
      return rig.gradients();
    });
  };
  const TensorDict dense = gradients({}, 1);
  expect_close(dense, gradients({.pipeline = 2}, 3));
  expect_close(dense, gradients({.data = 2}, 1));
}

}  // namespace
}  // namespace gantry::testing
