// Low precisions: float32 master weights and gradients, the loss scale, and steps that are not finite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/optimizers/loss_scaler.h"
#include "gantry/tensors/libtorch.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

CaseResult run(const std::string& precision, const Parallelism& how) {
  ModelCase what{.layers = 3, .vocabulary = 53, .batches = {6, 6, 6, 6, 6, 6}};
  what.precision = precision;
  return run_case(what, how);
}

TEST(Precision, LowOnesFollowFloat32InEveryLayout) {
  const CaseResult exact = run("float32", {});
  for (const char* precision : {"bfloat16", "float16"})
    for (const Parallelism& how : layouts_to_run<Parallelism>(
             {{},
              {.layout = {.pipeline = 2, .data = 2, .tensor = 2}, .microbatches = 2},
              {.layout = {.data = 2, .tensor = 2}, .sequence_parallel = true},
              {.layout = {.pipeline = 2, .data = 2}, .schedule = "zb_h1", .microbatches = 3, .zero = 1}})) {
      const CaseResult low = run(precision, how);
      ASSERT_EQ(low.losses.size(), exact.losses.size());
      for (std::size_t step = 0; step < low.losses.size(); ++step)
        EXPECT_NEAR(low.losses[step], exact.losses[step], 0.03 * exact.losses[step]) << precision << describe(how);
      EXPECT_LT(low.losses.back(), low.losses.front());
    }
}

// The data repeat every 8 steps, so that the loss falls. bench/RESULTS.md lists the tolerances around the
// float32 curve, as fractions of the first loss.
TEST(Precision, LowOnesFollowFloat32Over200Steps) {
  for (const char* family : layouts_to_run<const char*>({"gpt2", "llama"})) {
    ModelCase what{.family = family, .layers = 2, .width = 32, .vocabulary = 53, .batches = std::vector<int>(200, 6)};
    what.distinct = 8;
    what.lr = 2e-3;
    const Parallelism how{.layout = {.pipeline = 2, .data = 2}, .microbatches = 2, .zero = 1};
    what.precision = "float32";
    const CaseResult exact = run_case(what, how);
    ASSERT_EQ(exact.losses.size(), 200u);
    EXPECT_LT(exact.losses.back(), 0.5 * exact.losses.front()) << family;
    for (const char* precision : layouts_to_run<const char*>({"bfloat16", "float16"})) {
      what.precision = precision;
      const CaseResult low = run_case(what, how);
      ASSERT_EQ(low.losses.size(), 200u);
      double farthest = 0;
      for (std::size_t step = 0; step < 200; ++step)
        farthest = std::max(farthest, std::abs(low.losses[step] - exact.losses[step]));
      EXPECT_LT(farthest, (what.precision == "bfloat16" ? 0.05 : 0.02) * exact.losses.front())
          << family << " " << precision;
    }
  }
}

TEST(LossScaler, HalvesGrowsAndHasHysteresis) {
  LossScaler scaler({.initial = 1024, .growth_interval = 3, .hysteresis = 2});
  scaler.overflowed();
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.overflowed();
  EXPECT_EQ(scaler.scale(), 512);
  scaler.overflowed();
  scaler.stepped();  // clears the earlier overflow
  scaler.overflowed();
  EXPECT_EQ(scaler.scale(), 512);
  for (int step = 0; step < 3; ++step) scaler.stepped();
  EXPECT_EQ(scaler.scale(), 1024);
  for (int step = 0; step < 60; ++step) scaler.overflowed();
  EXPECT_EQ(scaler.scale(), 1);
}

enum class Taken { kNotReached, kNo, kYes };

struct PoisonedStep {
  int code = 0;
  std::vector<Taken> taken = std::vector<Taken>(4);  // indexed by rank
};

// Runs one step whose gradient is not finite on one rank only.
PoisonedStep poisoned_step(Config config) {
  config.model.policy = "gpt2";
  config.model.config_json = R"({"n_layer": 4, "n_head": 2, "n_embd": 8, "vocab_size": 16,
    "n_positions": 4, "tie_word_embeddings": false})";
  PoisonedStep seen;
  std::mutex mutex;
  seen.code = start_ranks()(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto model = build_model(config);
    auto boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy());
    const torch::Tensor ids = torch::arange(8).view({2, 4});
    booster.execute_pipeline(make_batch({{"input_ids", ids}, {"labels", ids}}), boosted);
    if (world.rank() == 2) {
      auto& gradients = boosted.optimizer->gradients();
      torch::Tensor gradient = gradients.gradient(0);
      gradient.view({-1})[0] = std::numeric_limits<double>::infinity();
    }
    const torch::Tensor before = boosted.model->stage_module().parameters[0].tensor.detach().clone();
    const bool taken = boosted.optimizer->step();
    EXPECT_EQ(torch::equal(before, boosted.model->stage_module().parameters[0].tensor), !taken);
    const std::lock_guard lock(mutex);
    seen.taken[world.rank()] = taken ? Taken::kYes : Taken::kNo;
  });
  return seen;
}

// The norm of the gradients after step(), on one rank.
double norm_that_a_step_leaves(const std::string& precision, const std::string& optimizer) {
  Config config = layout_config({});
  config.precision = precision;
  config.optimizer.name = optimizer;
  config.optimizer.clip_grad_norm = 0.05;
  config.model.policy = "gpt2";
  config.model.config_json = R"({"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 16, "n_positions": 4})";
  double squares = 0;
  const int code = start_ranks()(config, [&](World& world) {
    Booster booster{std::make_unique<HybridParallelPlugin>(world, config)};
    auto model = build_model(config);
    auto boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy());
    const torch::Tensor ids = torch::arange(8).view({2, 4});
    booster.execute_pipeline(make_batch({{"input_ids", ids}, {"labels", ids}}), boosted);
    EXPECT_GT(boosted.optimizer->grad_norm(), 0.1) << "clips nothing";
    EXPECT_TRUE(boosted.optimizer->step());
    const auto& gradients = boosted.optimizer->gradients();
    for (std::size_t i = 0; i < gradients.parameters().size(); ++i)
      squares += gradients.gradient(i).to(torch::kFloat64).square().sum().item<double>();
  });
  EXPECT_EQ(code, 0);
  return std::sqrt(squares);
}

TEST(Clipping, IsSeenInTheGradientsAfterAStepWhoeverScalesThem) {
  for (const char* precision : {"float64", "float32", "bfloat16", "float16"})
    for (const char* optimizer : {"adamw", "sgd"})
      EXPECT_NEAR(norm_that_a_step_leaves(precision, optimizer), 0.05, 1e-5) << precision << " " << optimizer;
}

// Runs four float16 steps. Returns the norms and gradients on rank 0 of the three steps that do not overflow,
// and the final weights. Each step has one call, except the first, which adds a second one. The second step
// overflows. `keeps`: the gradients keep the loss scale until step(). `some`: the optimizer has only some
// parameters.
std::vector<torch::Tensor> scaled_steps(Config config, bool keeps, bool some = false) {
  config.precision = "float16";
  config.model.policy = "gpt2";
  config.model.config_json = R"({"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 16, "n_positions": 4})";
  std::vector<torch::Tensor> seen;
  const int code = start_ranks()(config, [&](World& world) {
    Booster booster{std::make_unique<HybridParallelPlugin>(world, config)};
    auto model = build_model(config);
    auto stepping = build_optimizer(config, *model);
    if (some) stepping->param_groups().front().params().resize(3);
    auto boosted = booster.boost(model, stepping, cross_entropy());
    auto& optimizer = *boosted.optimizer;
    optimizer.keep_loss_scale(keeps);
    const auto& gradients = optimizer.gradients();
    const auto show = [&](const torch::Tensor& tensor) {
      if (world.is_main()) seen.push_back(tensor.detach().clone());
    };
    const auto run = [&](int first) {
      torch::Tensor ids = (torch::arange(16) + first).remainder(16).view({4, 4}), labels = ids.clone();
      labels[0].fill_(-100);
      booster.execute_pipeline(make_batch({{"input_ids", ids}, {"labels", labels}}), boosted);
    };
    run(0);
    for (int step = 0; step < 4; ++step) {
      // Before another gradient is added to it, a gradient loses its loss scale.
      EXPECT_EQ(gradients.left(), keeps && step == 0 ? 1.0 / 65536 : 1);
      run(step);
      EXPECT_EQ(gradients.left(), keeps && step > 0 ? 1.0 / 65536 : 1);
      const double infinity = std::numeric_limits<double>::infinity();
      if (step == 1)
        gradients.gradient(0).fill_(infinity);
      else
        for (const double p : {2.0, infinity}) show(torch::tensor(optimizer.grad_norm(p), torch::kFloat64));
      EXPECT_EQ(optimizer.step(), step != 1);
      for (std::size_t i = 0; i < gradients.parameters().size() && step != 1; ++i) show(gradients.owned_gradient(i));
      optimizer.zero_grad();
      EXPECT_EQ(gradients.left(), 1);
    }
    optimizer.wait();
    for (const auto& held : boosted.model->stage_module().parameters) show(held.tensor);
  });
  EXPECT_EQ(code, 0);
  EXPECT_FALSE(seen.empty());
  return seen;
}

// The scale is a power of two, so the place where it is removed does not change a bit.
TEST(LossScale, KeptUntilTheStepGivesTheSameBits) {
  for (const int zero : {0, 1})
    for (const char* optimizer : {"adamw", "sgd"})
      for (const auto clip : {std::optional<double>(), std::optional(0.05)}) {
        Config config = layout_config({.data = zero + 1});
        config.parallel.zero = zero;
        config.optimizer.name = optimizer;
        config.optimizer.clip_grad_norm = clip;
        const auto kept = scaled_steps(config, true), taken_out = scaled_steps(config, false);
        ASSERT_EQ(kept.size(), taken_out.size());
        for (std::size_t i = 0; i < kept.size(); ++i)
          EXPECT_TRUE(torch::equal(kept[i], taken_out[i])) << optimizer << " zero " << zero << ", number " << i;
      }
}

TEST(LossScale, IsTakenOutOfGradientsThatNobodySteps) {
  const auto kept = scaled_steps(layout_config({}), true, true),
             taken_out = scaled_steps(layout_config({}), false, true);
  ASSERT_EQ(kept.size(), taken_out.size());
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(torch::equal(kept[i], taken_out[i])) << i;
}

TEST(NonFinite, AStepSkippedOnOneRankIsSkippedOnAll) {
  Config config = layout_config({.pipeline = 2, .tensor = 2});
  for (const auto& [non_finite, precision] : {std::pair("skip", "float32"), std::pair("stop", "float16")}) {
    config.train.non_finite = non_finite;
    config.precision = precision;
    const PoisonedStep seen = poisoned_step(config);
    EXPECT_EQ(seen.code, 0);
    EXPECT_EQ(seen.taken, std::vector<Taken>(4, Taken::kNo));
  }
}

TEST(NonFinite, StoppingNamesParameterAndRank) {
  Config config = layout_config({.pipeline = 2, .tensor = 2});
  config.optimizer.clip_grad_norm = 1.0;
  ::testing::internal::CaptureStderr();
  const PoisonedStep seen = poisoned_step(config);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(seen.code, NumericalError::kExitCode);
  EXPECT_EQ(seen.taken, std::vector<Taken>(4, Taken::kNotReached));
  EXPECT_THAT(said, ::testing::HasSubstr("optimizer step 1: the gradient norm is inf, first in h.2."));
  EXPECT_THAT(said, ::testing::HasSubstr("on rank 2 (pp 1, dp 0, tp 0)"));
}

}  // namespace
}  // namespace gantry::testing
