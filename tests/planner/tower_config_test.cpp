// Configurations of models with an image encoder: stages, objections and plans.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "gantry/core/error.h"
#include "gantry/planner/configured_step.h"
#include "gantry/planner/resolved_config.h"
#include "gantry/planner/search.h"
#include "tower_models.h"

namespace gantry::planner {
namespace {

using ::testing::HasSubstr;

std::vector<int> counts_of(const ResolvedConfig& resolved) {
  std::vector<int> counts;
  for (const LayerRange& stage : resolved.layers) counts.push_back(stage.size());
  return counts;
}

TEST(ImageTowers, StagesOfAConfigurationCountThem) {
  const std::vector<std::string> pipeline = {"parallel.pipeline=4", "schedule.layers=[20, 12, 20, 16]"};
  const ResolvedConfig resolved = resolve_config(Config::parse(kQwen, "c.yaml", pipeline));
  EXPECT_EQ(resolved.tower_layers, 32);
  EXPECT_EQ(counts_of(resolved), (std::vector<int>{20, 12, 20, 16}));
  const ConfiguredStep step = configured_step(Config::parse(kQwen, "c.yaml", pipeline), {});
  ASSERT_EQ(step.layers.size(), 4u);
  EXPECT_EQ(step.layers[2].begin, 32);
  const auto refusal = [](const auto& resolve) -> std::string {
    try {
      resolve(Config::parse(kQwen, "c.yaml", {"parallel.pipeline=2", "schedule.layers=[18, 18]"}));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal([](const Config& config) { resolve_config(config); }), HasSubstr("68"));
  EXPECT_THAT(refusal([](const Config& config) { configured_step(config, {}); }), HasSubstr("68"));
  const Workload workload = tower_request(kQwen).workload;
  const Cluster two = with_ranks(load_cluster("a100_80g"), 2, /*grows=*/true);
  EXPECT_THAT(objection(workload, {.pipeline = 2, .layers = {18, 18}}, two).value_or("none"), HasSubstr("68"));
}

// Keys of a configuration may have the number of layers of the decoder, next to those of the encoder in a file.
TEST(ImageTowers, ListsOfLayersAreNotComparedWithTheDecoderAlone) {
  const std::string text = fmt::format(
      "model: {{path: \"{}\", policy: gemma3, config: {{image_encoder: true, num_hidden_layers: 3}}}}\n"
      "parallel: {{pipeline: 2}}\nschedule: {{layers: [2, 3]}}\n",
      folder_of("gemma3"));
  EXPECT_NO_THROW(Config::parse(text));
}

// By number, stages have equally many layers. Those of a tower take other times than those of the decoder.
TEST(ImageTowers, BalancedLayersFollowTheWorkOfTheTower) {
  for (const char* text : {kGemma, kQwen}) {
    const auto counts = [&](const std::string& layers) {
      return counts_of(
          resolve_config(Config::parse(text, "c.yaml", {"parallel.pipeline=4", "schedule.layers=" + layers})));
    };
    const std::vector<int> by_work = counts("balanced");
    EXPECT_NE(by_work, counts("default"));
    EXPECT_EQ(std::accumulate(by_work.begin(), by_work.end(), 0), text == kGemma ? 27 + 34 : 32 + 36);
    const Workload workload = tower_request(text, {"data.sequence_length=256"}).workload;
    EXPECT_LT(tower_estimate(workload, {.pipeline = 4, .balanced = true}).step_seconds,
              tower_estimate(workload, {.pipeline = 4}).step_seconds);
  }
}

TEST(ImageTowers, PlansChooseALayout) {
  for (const char* text : {kGemma, kQwen}) {
    const PlanRequest request =
        tower_request(text, {"schedule.layers=auto", "parallel.context=auto", "parallel.vocabulary=auto",
                             "schedule.recompute=full", "data.batch_size=8"});
    Cluster cluster = part_of(load_cluster("a100_80g"), 4);
    cluster.device.memory_bytes = 30.0 * 1024 * 1024 * 1024;
    const SearchResult all = search(request, cluster, {.top = 3, .prunes = false}),
                       found = search(request, cluster, {.top = 3});
    ASSERT_EQ(found.best.size(), 3u);
    for (std::size_t place = 0; place < found.best.size(); ++place) {
      EXPECT_EQ(found.best[place].estimate.step_seconds, all.best.at(place).estimate.step_seconds);
      EXPECT_FALSE(found.best[place].layout.shares_vocabulary);
      EXPECT_EQ(found.best[place].layout.context, 1);
    }
  }
}

TEST(ImageTowers, WhatTheyDoNotSupportIsObjectedTo) {
  const Workload workload = tower_request(kQwen).workload;
  const auto objection_of = [&](const Layout& layout) {
    return objection(workload, layout, with_ranks(load_cluster("a100_80g"), layout.ranks(), /*grows=*/true))
        .value_or("none");
  };
  EXPECT_EQ(objection_of({.tensor = 2}), "none");
  EXPECT_THAT(objection_of({.context = 2}), HasSubstr("context 2"));
  EXPECT_THAT(objection_of({.pipeline = 2, .shares_vocabulary = true}), HasSubstr("image encoders"));
  Workload few = tower_step_of(tower_spec("gemma3"));
  EXPECT_THAT(objection(few, {.tensor = 4}, with_ranks(load_cluster("a100_80g"), 4, /*grows=*/true)).value_or("none"),
              HasSubstr("tensor 4 is above the 2 heads of the image encoder"));
}

}  // namespace
}  // namespace gantry::planner
