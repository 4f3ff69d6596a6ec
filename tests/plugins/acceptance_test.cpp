// What users of other systems rely on in a training step.
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "gantry/booster/recipe.h"
#include "gantry/comm/launch.h"
#include "gantry/core/error.h"
#include "gantry/models/gpt2.h"
#include "gantry/plugins/gather.h"
#include "gantry/plugins/gradient_norm.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

constexpr double kTolerance = 1e-10;

Config tiny(const Layout& layout, int microbatches = 2) {
  Config config = layout_config(layout);
  config.model.policy = "gpt2";
  config.model.config_json =
      R"({"n_layer": 4, "n_head": 3, "n_embd": 12, "vocab_size": 29, "n_positions": 5, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})";
  config.precision = "float64";
  config.schedule.microbatches = microbatches;
  config.optimizer.lr = 1e-2;
  return config;
}

TensorDict tokens(std::int64_t samples, int seed = 0) {
  const torch::Tensor all = (torch::arange(samples * 6).view({samples, 6}) * 7 + seed) % 29;
  return {{"input_ids", all.narrow(1, 0, 5).contiguous()}, {"labels", all.narrow(1, 1, 5).contiguous()}};
}

// A boosted tiny model on one rank.
struct Rig {
  Rig(World& world, const Config& config, Criterion criterion = cross_entropy(), bool optimize = true)
      : plugin(new HybridParallelPlugin(world, config)), booster(std::unique_ptr<Plugin>(plugin)) {
    auto model = build_model(config);
    boosted = booster.boost(model, optimize ? build_optimizer(config, *model) : nullptr, std::move(criterion));
  }
  // This replica's samples of a whole batch.
  Batch batch(const TensorDict& whole) const {
    Batch all = make_batch(whole);
    const auto pieces = split_evenly(all.samples, plugin->mesh().size("dp"));
    const auto [begin, end] = pieces[plugin->mesh().coordinate("dp")];
    Batch mine = slice(all, begin, end);
    mine.first_sample = 0;
    return mine;  // counts are found out
  }
  TensorDict gradients() {
    return gather_tensors(boosted.model->stage_module(), plugin->stages(), plugin->mesh(),
                          [&](std::size_t i) { return boosted.optimizer->gradients().gradient(i); });
  }
  TensorDict weights() {
    return gather_tensors(boosted.model->stage_module(), plugin->stages(), plugin->mesh(),
                          [&](std::size_t i) { return boosted.model->stage_module().parameters[i].tensor; });
  }
  HybridParallelPlugin* plugin;
  Booster booster;
  Boosted boosted;
};

// The same body on every rank of a layout; what it returns on rank 0.
template <class Result>
Result on_layout(const Config& config, const std::function<Result(World&)>& body) {
  Result result{};
  EXPECT_EQ(launch(config,
                   [&](World& world) {
                     Result mine = body(world);
                     if (world.is_main()) result = std::move(mine);
                   }),
            0);
  return result;
}

void expect_close(const TensorDict& a, const TensorDict& b, double tolerance = kTolerance) {
  for (const auto& [name, tensor] : a)
    EXPECT_LE((tensor - b.at(name)).abs().max().item<double>(),
              tolerance * std::max(1.0, tensor.abs().max().item<double>()))
        << name;
}

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
  EXPECT_EQ(launch(config, [&](World& world) { Rig rig(world, config); }), 3);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("3 units (of 4 elements) over 4 ranks"), std::string::npos);
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
  EXPECT_EQ(launch(config,
                   [&](World& world) {
                     Rig rig(world, config);
                     for (int step = 0; step < 100; ++step) {
                       rig.booster.execute_pipeline(rig.batch(tokens(4, step)), rig.boosted);
                       rig.boosted.optimizer->step();
                       rig.boosted.optimizer->zero_grad();
                     }
                     ProcessGroup& pipeline = rig.plugin->mesh()["pp"];
                     torch::Tensor copy = torch::zeros({29, 12}, torch::kFloat64);
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
  EXPECT_EQ(launch(config,
                   [&](World& world) {
                     auto* plugin = new HybridParallelPlugin(world, config);
                     Booster booster{std::unique_ptr<Plugin>(plugin)};
                     models::Gpt2Config model_config;
                     model_config.n_layer = 2, model_config.n_embd = 12, model_config.n_head = 3,
                     model_config.vocab_size = 29, model_config.n_positions = 5;
                     models::Gpt2 model(model_config);  // each rank draws its own
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

TEST(Acceptance, D10MissingInputsAreNamed) {
  ::testing::internal::CaptureStderr();
  const Config config = tiny({.pipeline = 2});
  EXPECT_EQ(
      launch(config,
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
  const TensorDict whole = on_layout<TensorDict>(tiny({}), [&](World& world) {
    Rig rig(world, tiny({}), cross_entropy(), /*optimize=*/false);
    return rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted, {.return_outputs = true}).outputs;
  });
  EXPECT_EQ(launch(config,
                   [&](World& world) {
                     Rig rig(world, config, cross_entropy(), /*optimize=*/false);  // no optimizer: forwards only
                     const auto result =
                         rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted, {.return_outputs = true});
                     EXPECT_EQ(result.loss.has_value(), rig.plugin->stages().holds_last());
                     EXPECT_EQ(result.outputs.contains("logits"), rig.plugin->stages().holds_last());
                     if (rig.plugin->stages().holds_last()) expect_close(whole, result.outputs);
                     const auto everywhere =
                         rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted, {.broadcast_loss = true});
                     EXPECT_TRUE(everywhere.loss.has_value());
                     const auto silent =
                         rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted, {.return_loss = false});
                     EXPECT_FALSE(silent.loss.has_value());
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
  batch.at("labels").narrow(0, 0, 2).fill_(-100);  // a whole microbatch counts nothing
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

TEST(Acceptance, D17ABoostedModelRunsThroughExecutePipelineOnly) {
  const Config config = tiny({});
  EXPECT_EQ(launch(config,
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
  const auto whole = [](const Layout& layout) {
    const Config config = tiny(layout);
    return on_layout<TensorDict>(config, [&](World& world) {
      Rig rig(world, config);
      TensorDict all = tokens(8);
      rig.booster.execute_pipeline(rig.batch(all), rig.boosted);
      return rig.gradients();
    });
  };
  const TensorDict expected = whole({});
  for (const Layout& layout : {Layout{}, Layout{.data = 2}, Layout{.pipeline = 2, .tensor = 2}}) {
    const Config config = tiny(layout);
    EXPECT_EQ(launch(config,
                     [&](World& world) {
                       Rig rig(world, config);
                       const auto part = [&](std::int64_t begin, std::int64_t count) {
                         TensorDict piece;
                         for (const auto& [name, tensor] : tokens(8)) piece.set(name, tensor.narrow(0, begin, count));
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
  EXPECT_EQ(launch(config,
                   [&](World& world) {
                     Rig rig(world, config);
                     for (const std::int64_t length : {1, 3, 5}) {  // a growing prompt: shapes change from call to call
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

TEST(Booster, AUsersOwnOptimizerAndPlainCriterionTrainAlike) {
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
        boosted.optimizer->inner().zero_grad();  // the user's own way
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
  EXPECT_EQ(launch(config,
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
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("has state of 2 parameters already"), std::string::npos);
}

}  // namespace
}  // namespace gantry::testing
