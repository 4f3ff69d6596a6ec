// Data offloaded to host memory is restored unchanged: every
// schedule and layout is bitwise identical to one without offload.
#include <gtest/gtest.h>
#include <map>

#include "gantry/booster/gantry.h"
#include "gantry/core/error.h"
#include "gantry/planner/config.h"
#include "gantry/planner/recompute.h"
#include "gantry/schedule/generators/generator.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

const ModelCase kMoved{.layers = 4, .width = 24, .dropout = 0.1, .tokens = 16, .batches = {6, 5}};

void expect_bits_of_none(const ModelCase& what, const std::vector<Parallelism>& layouts) {
  for (Parallelism how : layouts) {
    const CaseResult expected = run_case(what, how);
    how.offload = "both";
    expect_identical(expected, run_case(what, how), describe(how));
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Offload, GivesTheSameBitsUnderEverySchedule) {
  std::vector<Parallelism> layouts = {{{}, "gpipe", 6}};
  for (const auto& generator : schedule::generators())
    layouts.push_back({{.pipeline = 2}, generator.name, 6, false, generator.default_chunks});
  layouts.push_back({{.pipeline = 2}, "interleaved_1f1b", 6, false, 2});
  expect_bits_of_none(kMoved, layouts);
}

TEST(Offload, OfEachKind) {
  Parallelism how{{.pipeline = 2}, "gpipe", 6};
  const CaseResult expected = run_case(kMoved, how);
  for (const char* offload : {"optimizer", "activations"}) {
    how.offload = offload;
    expect_identical(expected, run_case(kMoved, how), describe(how));
  }
}

TEST(Offload, GivesTheSameBitsInEveryLayout) {
  std::vector<Parallelism> layouts;
  for (const char* recompute : {"selective", "parts", "full"})
    layouts.push_back({{.pipeline = 2, .tensor = 2}, "gpipe", 6, true, 1, recompute});
  for (const int zero : {1, 2, 3})
    layouts.push_back({.layout = {.pipeline = 2, .data = 2}, .schedule = "gpipe", .microbatches = 3, .zero = zero});
  layouts.push_back({.layout = {.pipeline = 1, .data = 2}, .schedule = "gpipe", .microbatches = 3, .zero = 3});
  layouts.push_back({.layout = {.pipeline = 2}, .schedule = "zb_h1", .microbatches = 3, .accumulation = 2});
  layouts.push_back({.layout = {.pipeline = 2}, .schedule = "gpipe", .microbatches = 6, .vocabulary = "pipeline"});
  expect_bits_of_none(kMoved, layouts);
}

// Master weights of 16-bit parameters, momentum of matrices that one rank updates as a whole, and experts.
TEST(Offload, GivesTheSameBitsOfEveryState) {
  const Parallelism how{{.pipeline = 2, .data = 2}, "gpipe", 3};
  Parallelism zero = how;
  zero.zero = 1;
  for (const char* optimizer : {"adamw", "lion", "sgd", "muon"})
    expect_bits_of_none(
        {.layers = 2, .tokens = 16, .batches = {6, 6, 6}, .precision = "bfloat16", .optimizer = optimizer},
        {how, zero});
  expect_bits_of_none({.family = "mixtral", .layers = 2, .tokens = 16, .batches = {6, 6}},
                      {{{.pipeline = 2}, "gpipe", 6}});
}

// The plugin runs the choice of `recompute: auto`.
TEST(RecomputeAuto, IsWhatAPlannerChooses) {
  const std::string text =
      "model: {policy: gpt2, config: {n_embd: 64, n_layer: 4, n_head: 4, n_positions: 128, vocab_size: 500}}\n"
      "data: {format: tokens, path: x, sequence_length: 128, batch_size: 8}\nparallel: {pipeline: 2}\n"
      "schedule: {name: gpipe, recompute: auto, memory_limit: 12 MiB}\n";
  const Config config = Config::parse(text, "c.yaml");
  const auto choice = planner::chosen_recompute(config, 1);
  ASSERT_TRUE(choice.has_value());
  EXPECT_GT(choice->recomputed(), 0);
  run_ranks(Layout{.pipeline = 2}, [&](World& world, ProcessGroupMesh&) {
    const HybridParallelPlugin plugin(world, config);
    const std::map<std::string, Recomputation> by_name{
        {"selective", Recomputation::kSelective}, {"parts", Recomputation::kParts}, {"full", Recomputation::kFull}};
    EXPECT_EQ(plugin.options().recompute.how, by_name.at(planner::name_of(choice->how)));
    EXPECT_EQ(plugin.options().recompute.layers, choice->layers);
  });
}

TEST(Offload, IsRefusedInALoopOfOnesOwn) {
  run_ranks(1, [](World& world, ProcessGroupMesh&) {
    Config config;
    config.train.offload = "activations";
    config.model.policy = "gpt2";
    config.model.config_json = R"({"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 11, "n_positions": 4})";
    HybridParallelPlugin plugin(world, config);
    try {
      plugin.boost({.model = build_model(config), .loop = Loop::kOwn});
      FAIL() << "it was taken";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("train.offload: offloading is not supported"), std::string::npos)
          << error.what();
    }
  });
}

}  // namespace
}  // namespace gantry::testing
