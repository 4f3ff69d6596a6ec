// Embedding and head sharded over all ranks of a pipeline give
// one rank's numbers: float64, 1e-10, complete training steps.
#include <gtest/gtest.h>

#include "gantry/core/config/schedule_names.h"
#include "gantry/tensors/libtorch.h"
#include "model_case.h"
#include "tiny_rig.h"

namespace gantry::testing {
namespace {

Parallelism shared(Layout layout, const std::string& schedule = "1f1b", int microbatches = 3,
                   bool sequence_parallel = false) {
  Parallelism how{layout, schedule, microbatches, sequence_parallel, default_chunks(schedule)};
  how.vocabulary = "pipeline";
  return how;
}

// Each layout with algorithm 2, the default, and every second one with algorithm 1 as well.
std::vector<Parallelism> by_both(std::vector<Parallelism> layouts) {
  for (std::size_t i = 0, given = layouts.size(); i < given; i += 2) {
    layouts.push_back(layouts[i]);
    layouts.back().vocabulary_algorithm = 1;
  }
  return layouts;
}

// 131 words over 2, 3, 4 and 6 ranks.
const ModelCase kUneven{.layers = 4, .width = 12, .vocabulary = 131, .dropout = 0.1};

TEST(Vocabulary, TiedOverAllAxes) {
  expect_layouts_equal(
      kUneven, by_both({shared({.pipeline = 2}), shared({.pipeline = 3}, "1f1b", 1), shared({.pipeline = 4}, "1f1b", 6),
                        shared({.pipeline = 2, .data = 2, .tensor = 2}),
                        shared({.pipeline = 3, .data = 1, .tensor = 2}, "1f1b", 2),
                        shared({.pipeline = 2, .data = 1, .tensor = 2}, "1f1b", 3, true)}));
}

TEST(Vocabulary, UntiedOverAllAxes) {
  ModelCase untied = kUneven;
  untied.tied = false;
  expect_layouts_equal(untied,
                       {shared({.pipeline = 2}), shared({.pipeline = 3}, "1f1b", 6), shared({.pipeline = 2, .data = 2}),
                        shared({.pipeline = 3, .data = 1, .tensor = 2}, "1f1b", 2, true)});
}

TEST(Vocabulary, EverySchedule) {
  ModelCase deep = kUneven;
  deep.layers = 8;
  std::vector<Parallelism> layouts;
  for (const auto& known : schedule_names()) {
    if (known.name == std::string("dualpipe_v")) continue;  // pairs
    for (const int pipeline : {2, 4}) layouts.push_back(shared({.pipeline = pipeline}, known.name, 5));
  }
  layouts.push_back(shared({.pipeline = 2}, "interleaved_1f1b", 6));
  layouts.back().chunks = 2;
  expect_layouts_equal(deep, by_both(layouts));
}

TEST(Vocabulary, LossesOfEveryKind) {
  for (const bool tied : {true, false}) {
    ModelCase what = kUneven;
    what.tied = tied;
    what.smoothing = 0.1;
    what.z_loss = 1e-3;
    what.ignored = 0.4;
    expect_layouts_equal(what, by_both({shared({.pipeline = 3}), shared({.pipeline = 2, .data = 2, .tensor = 2})}));
  }
  ModelCase causal = kUneven;
  causal.causal_labels = true;
  expect_layouts_equal(causal, {shared({.pipeline = 2})});
}

// Scales, caps, rows scaled after the look-up, padding rows, learned positions with an offset, a head with a bias.
TEST(Vocabulary, FamiliesWithScalesAndCaps) {
  for (const auto& [family, keys] :
       {std::pair("gemma2", R"({"head_dim": 6, "final_logit_softcapping": 3.0})"),
        std::pair("granite", R"({"logits_scaling": 2.5, "embedding_multiplier": 3.0})"),
        std::pair("cohere", R"({"logit_scale": 0.25})"), std::pair("gptj", R"({"rotary_dim": 4})"),
        std::pair("opt", "{}"), std::pair("llama", R"({"pad_token_id": 3})")}) {
    ModelCase what = kUneven;
    what.family = family;
    what.keys = keys;
    what.dropout = 0;
    what.heads = what.key_heads = 2;
    expect_layouts_equal(what, by_both({shared({.pipeline = 3}), shared({.pipeline = 2, .data = 1, .tensor = 2})}));
  }
}

TEST(Vocabulary, WithZeroAccumulationContextAndRecomputation) {
  Parallelism zero = shared({.pipeline = 2, .data = 2});
  zero.zero = 1;
  Parallelism calls = shared({.pipeline = 2});
  calls.accumulation = 2;
  Parallelism recomputed = shared({.pipeline = 2}, "zb_h1", 3);
  recomputed.recompute = "full";
  Layout layout{.pipeline = 2};
  layout.context = 2;
  expect_layouts_equal(kUneven, {zero, calls, recomputed, shared(layout)});
}

// The head of 131 words costs as much as 131 / (12 * 12)
// layers, so sharing the vocabulary makes the step shorter.
TEST(Vocabulary, AutoIsOneOfTheTwo) {
  Parallelism chosen = shared({.pipeline = 2});
  chosen.vocabulary = "auto";
  Parallelism unsupported = shared({.pipeline = 2, .data = 2});
  unsupported.vocabulary = "auto";
  unsupported.zero = 2;
  expect_layouts_equal(kUneven, {chosen, unsupported});
}

TEST(Vocabulary, EvaluatesAndReturnsFullLogits) {
  const auto outputs = [](const Layout& layout, const std::string& vocabulary) {
    Config config = tiny(layout);
    config.parallel.vocabulary = vocabulary;
    return on_layout<TensorDict>(config, [&](World& world) {
      Rig rig(world, config);
      const auto done = rig.booster.execute_pipeline(
          rig.batch(tokens(4)), rig.boosted, {.return_outputs = true, .broadcast_loss = true, .forward_only = true});
      TensorDict all{{"loss", torch::tensor(*done.loss, torch::kFloat64)}};
      torch::Tensor logits = torch::zeros({4, 5, 29}, torch::kFloat64);
      if (done.outputs.contains("logits")) logits = done.outputs.at("logits").detach().clone();
      const int last = rig.plugin->mesh().size("pp") - 1;
      rig.plugin->mesh()["pp"].broadcast(logits, last).wait();
      all.set("logits", logits);
      return all;
    });
  };
  const TensorDict dense = outputs({}, "stages");
  expect_close(dense, outputs({.pipeline = 3}, "pipeline"));
  expect_close(dense, outputs({.pipeline = 2, .data = 1, .tensor = 2}, "pipeline"));
}

// An aborted step changes nothing, on whichever rank it starts.
TEST(Vocabulary, AStepIsGivenUp) {
  Config config = tiny({.pipeline = 3}, 4);
  config.parallel.vocabulary = "pipeline";
  const auto losses = on_layout<std::vector<double>>(config, [&](World& world) {
    Rig rig(world, config);
    std::vector<double> all;
    for (int who = 0; who < 3; ++who) {
      int asked = 0;
      const auto aborted = rig.booster.execute_pipeline(
          rig.batch(tokens(4)), rig.boosted,
          {.stops = [&] { return rig.plugin->mesh().coordinate("pp") == who && ++asked > 3 + 2 * who; }});
      EXPECT_TRUE(aborted.aborted);
      const auto full = rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted, {.broadcast_loss = true});
      all.push_back(*full.loss);
      rig.boosted.optimizer->zero_grad();
    }
    return all;
  });
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
}

std::string refused(Config config, Criterion criterion = cross_entropy()) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(start_ranks()(config, [&](World& world) { Rig rig(world, config, criterion); }), 3);
  return ::testing::internal::GetCapturedStderr();
}

TEST(Vocabulary, RefusesWhatItDoesNotCarry) {
  Config config = tiny({.pipeline = 2, .data = 2});
  config.parallel.vocabulary = "pipeline";
  Config zero = config;
  zero.parallel.zero = 2;
  EXPECT_NE(refused(zero).find("parallel.zero is 2"), std::string::npos);
  const Criterion own([](const TensorDict& outputs, const TensorDict&) { return outputs.at("logits").mean(); });
  EXPECT_NE(refused(config, own).find("the criterion needs full outputs"), std::string::npos);
}

}  // namespace
}  // namespace gantry::testing
