// The criterion of a call, in every kind of layout; several models of one plugin; and models that outlive it.
#include <gmock/gmock.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "ranks_outcome.h"
#include "tiny_rig.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

// Needs full logits: half of the vocabulary would give another number.
Loss spread_of_logits(const TensorDict& outputs, const TensorDict& batch) {
  const torch::Tensor& logits = outputs.at("logits");
  EXPECT_EQ(logits.size(-1), 29);
  const torch::Tensor counted = batch.at("labels") != -100;
  return {(logits.softmax(-1).square().sum(-1) * counted).sum(), counted.sum()};
}

struct OfCall {
  double loss = 0;
  TensorDict gradients;
};

OfCall run_with(const Config& config, const Criterion& boosted_with, const Criterion& of_call, bool assigned) {
  return on_layout<OfCall>(config, [&](World& world) {
    Rig rig(world, config, boosted_with);
    rig.booster.execute_pipeline(rig.batch(tokens(4, 3)), rig.boosted);
    rig.boosted.optimizer->zero_grad();
    ExecuteOptions options{.broadcast_loss = true};
    if (assigned)
      rig.boosted.criterion = of_call;
    else
      options.criterion = of_call;
    OfCall seen;
    seen.loss = *rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted, options).loss;
    rig.boosted.optimizer->gradients().complete();
    seen.gradients = rig.gradients();
    return seen;
  });
}

TEST(CriterionOfCall, IsUsedInEveryLayout) {
  const Criterion smoothed = cross_entropy({.label_smoothing = 0.3});
  struct Case {
    std::string name;
    Layout layout;
    std::string vocabulary = "stages";
    int context = 1;
  };
  const std::vector<Case> cases = {{"one rank", {}},
                                   {"tp", {.tensor = 2}},
                                   {"tp, pp", {.pipeline = 2, .tensor = 2}},
                                   {"vocabulary", {.pipeline = 2}, "pipeline"}};
  for (const Criterion& of_call : {smoothed, Criterion(spread_of_logits)}) {
    const OfCall expected = run_with(tiny({}), of_call, of_call, false);
    for (const Case& one : cases)
      for (const bool assigned : {false, true}) {
        if (one.vocabulary == "pipeline" && !of_call.labelled()) continue;
        SCOPED_TRACE(one.name);
        Config config = tiny(one.layout);
        config.parallel.vocabulary = one.vocabulary;
        const OfCall got = run_with(config, cross_entropy(), of_call, assigned);
        EXPECT_NEAR(got.loss, expected.loss, 1e-10);
        expect_close(expected.gradients, got.gradients);
      }
  }
}

TEST(CriterionOfCall, OfSplitOutputsAfterOneOfFullOnes) {
  const OfCall expected = run_with(tiny({}), cross_entropy(), cross_entropy(), false);
  const OfCall got = run_with(tiny({.tensor = 2}), spread_of_logits, cross_entropy(), false);
  EXPECT_NEAR(got.loss, expected.loss, 1e-10);
  expect_close(expected.gradients, got.gradients);
}

TEST(CriterionOfCall, WithContextParallelism) {
  const Criterion smoothed = cross_entropy({.label_smoothing = 0.3});
  Config config = tiny({});
  config.parallel.context = 2;
  const OfCall expected = run_with(tiny({}), smoothed, smoothed, false);
  const OfCall got = run_with(config, cross_entropy(), smoothed, false);
  EXPECT_NEAR(got.loss, expected.loss, 1e-10);
  expect_close(expected.gradients, got.gradients);
}

TEST(CriterionOfCall, ThatIsNotPossibleIsRefused) {
  Config context = tiny({}), vocabulary = tiny({.pipeline = 2});
  context.parallel.context = 2;
  vocabulary.parallel.vocabulary = "pipeline";
  for (const auto& [config, text] : {std::pair(context, "the criterion may need full sequences"),
                                     std::pair(vocabulary, "the criterion needs full outputs")}) {
    const Config& its = config;
    const RanksOutcome said = outcome_of(its, [&](World& world) {
      Rig rig(world, its);
      rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted, {.criterion = spread_of_logits});
    });
    EXPECT_EQ(said.code, 3);
    EXPECT_THAT(said.text, HasSubstr(text));
  }
}

// One model that gains by sharing its vocabulary over the pipeline, and one that does not.
TEST(SeveralModels, OfOnePluginHaveSchedulesOfTheirOwn) {
  Config large = tiny({.pipeline = 2});
  large.parallel.vocabulary = "auto";
  large.model.config_json =
      R"({"n_layer": 2, "n_head": 2, "n_embd": 8, "vocab_size": 4000, "n_positions": 5, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})";
  Config small = tiny({.pipeline = 2});
  small.model.config_json =
      R"({"n_layer": 8, "n_head": 3, "n_embd": 48, "vocab_size": 29, "n_positions": 5, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})";
  on_layout<int>(large, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, large);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    std::vector<Boosted> models;
    for (const Config& config : {large, small, large}) {
      auto model = build_model(config);
      models.push_back(booster.boost(model, build_optimizer(config, *model), cross_entropy()));
    }
    const auto has_passes = [&](const Boosted& boosted) {
      for (const auto& row : plugin->schedule_for(boosted, 4, false).actions)
        for (const auto& action : row)
          if (schedule::is_of_vocabulary(action.kind)) return true;
      return false;
    };
    EXPECT_TRUE(has_passes(models[0]));
    EXPECT_FALSE(has_passes(models[1]));
    for (int step = 0; step < 2; ++step)
      for (Boosted& boosted : models) {
        EXPECT_GT(*booster.execute_pipeline(make_batch(tokens(4)), boosted, {.broadcast_loss = true}).loss, 0);
        boosted.optimizer->step();
        boosted.optimizer->zero_grad();
      }
    return 0;
  });
}

Boosted boosted_without_its_booster(World& world, const Config& config) {
  Rig rig(world, config);
  rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted);
  return rig.boosted;
}

TEST(Lifetimes, ModelAndOptimizerOutliveTheBooster) {
  for (const int zero : {0, 1, 2, 3})
    for (const char* precision : {"float64", "bfloat16"}) {
      Config config = tiny({.data = 2});
      config.parallel.zero = zero;
      config.precision = precision;
      config.optimizer.clip_grad_norm = 0.1;
      EXPECT_EQ(start_ranks()(config,
                              [&](World& world) {
                                Boosted kept = boosted_without_its_booster(world, config);
                                EXPECT_GT(kept.optimizer->grad_norm(), 0);
                                EXPECT_TRUE(kept.optimizer->step());
                                kept.optimizer->wait();
                                kept.optimizer->zero_grad();
                                const auto model = kept.model;
                                kept = {};
                                for (const auto& held : model->stage_module().parameters)
                                  EXPECT_TRUE(held.tensor.isfinite().all().item<bool>()) << held.placement.name;
                              }),
                0);
    }
}

TEST(Lifetimes, AGuardOutlivesTheBooster) {
  const Config config = tiny({});
  on_layout<int>(config, [&](World& world) {
    std::optional<Rig> rig(std::in_place, world, config);
    const Booster::NoSync guard = rig->booster.no_sync(rig->boosted);
    rig.reset();
    return 0;
  });
}

}  // namespace
}  // namespace gantry::testing
