#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

#include "gantry/core/config/schedule_choice.h"
#include "gantry/core/error.h"
#include "gantry/schedule/pipeline_stage_manager.h"
#include "gantry/schedule/stages/layers_per_stage.h"

namespace gantry {
namespace {

using Counts = std::vector<int>;

TEST(Acceptance, D2StageManagerKnowsStagesAndEnds) {
  const PipelineStageManager loop(1, 4, 2);
  EXPECT_EQ(loop.stages(), (Counts{1, 5}));
  EXPECT_EQ(loop.num_stages(), 8);
  EXPECT_EQ(loop.rank_of(6), 2);
  EXPECT_FALSE(loop.holds_first() || loop.holds_last());
  const PipelineStageManager v(0, 4, 2, StagePlacement::kV);
  EXPECT_EQ(v.stages(), (Counts{0, 7}));
  EXPECT_TRUE(v.holds_first() && v.holds_last());
  EXPECT_THROW(PipelineStageManager(0, std::vector<std::vector<int>>{{0, 1}, {1}}), ConfigError);
  EXPECT_THROW(PipelineStageManager(4, 4), ConfigError);
}

TEST(Acceptance, D4DistributeLayersPutsTheRemainderInTheMiddle) {
  EXPECT_EQ(distribute_layers(10, 4), (Counts{2, 3, 3, 2}));
  EXPECT_EQ(distribute_layers(9, 4), (Counts{2, 2, 3, 2}));
  EXPECT_EQ(distribute_layers(30, 4), (Counts{7, 8, 8, 7}));
  for (int stages = 1; stages <= 9; ++stages)
    for (int layers = stages; layers <= 80; ++layers) {
      const auto counts = distribute_layers(layers, stages);
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), layers);
      EXPECT_LE(*std::max_element(counts.begin(), counts.end()) - *std::min_element(counts.begin(), counts.end()), 1);
    }
  EXPECT_THROW(distribute_layers(3, 4), ConfigError);
}

TEST(LayoutString, ReadsMegatronsFormAndPointsAtFaults) {
  EXPECT_EQ(parse_layout_string("Et*3|(tt|)*2tt|L").layers, (Counts{3, 2, 2, 2, 0}));
  EXPECT_EQ(parse_layout_string("Et,t|tL").layers, (Counts{2, 1}));
  EXPECT_EQ(parse_layout_string("Et,t|tL").mtp, 0);
  for (const char* with_mtp : {"Et*2|tmmL", "Et*2|t|mmL", "Et*2|t|mm|L", "Et*2|tm*2|L"})
    EXPECT_EQ(parse_layout_string(with_mtp).mtp, 2) << with_mtp;
  EXPECT_EQ(parse_layout_string("Et*2|t|mm|L").layers, (Counts{2, 1, 2, 0}));
  for (const char* wrong :
       {"t|L", "Et", "Etm|t|L", "Et|m|mL", "E(t|L", "Et)L", "Et*|L", "Ex|L", "EtLt", "Et*999999999L"})
    EXPECT_THROW(parse_layout_string(wrong), ConfigError) << wrong;
}

TEST(ScheduleChoice, MicrobatchesAreTwiceTheStagesAndAtMostTheSamples) {
  ScheduleConfig schedule;
  EXPECT_EQ(microbatch_count(schedule, 1, 64), 1);
  EXPECT_EQ(microbatch_count(schedule, 4, 64), 8);
  EXPECT_EQ(microbatch_count(schedule, 4, 3), 3);
  EXPECT_EQ(microbatch_count(schedule, 4, 0), 0);
  schedule.microbatches = 5;
  EXPECT_EQ(microbatch_count(schedule, 4, 64), 5);
  schedule.microbatches.reset();
  schedule.microbatch_size = 3;
  EXPECT_EQ(microbatch_count(schedule, 4, 10), 4);
}

TEST(ScheduleChoice, LayersAreThoseThatTheKeySays) {
  ScheduleConfig schedule;
  const auto layers = [&](int count, int stages) {
    Counts rank_of_stage(stages);
    std::iota(rank_of_stage.begin(), rank_of_stage.end(), 0);
    return layers_per_stage(schedule, {.layers = std::vector<double>(count, 1.0), .last = 1}, rank_of_stage);
  };
  EXPECT_EQ(layers(10, 4), (Counts{2, 3, 3, 2}));
  schedule.layers.emplace<std::string>("balanced");
  EXPECT_EQ(layers(9, 2), (Counts{5, 4}));
  schedule.layers.emplace<std::string>("Ett|tL");
  EXPECT_EQ(layers(3, 2), (Counts{2, 1}));
  schedule.layers.emplace<Counts>({1, 2});
  EXPECT_EQ(layers(3, 2), (Counts{1, 2}));
}

TEST(LayerRanges, RefusesCountsThatDoNotAddUp) {
  EXPECT_EQ(layer_ranges({2, 0, 3}, 5, 3)[2].begin, 2);
  EXPECT_THROW(layer_ranges({2, 2}, 5, 2), ConfigError);
  EXPECT_THROW(layer_ranges({5}, 5, 2), ConfigError);
}

}  // namespace
}  // namespace gantry
