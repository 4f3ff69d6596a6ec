#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>

#include "gantry/core/error.h"
#include "gantry/core/pipeline_stage_manager.h"
#include "gantry/core/schedule_choice.h"

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

// The costs of all stages, the heaviest first.
std::vector<double> loads(Counts counts, double first_cost, double last_cost) {
  std::vector<double> loads(counts.begin(), counts.end());
  loads.front() += first_cost;
  loads.back() += last_cost;
  std::sort(loads.rbegin(), loads.rend());
  return loads;
}

void try_all_ways(Counts& counts, std::size_t stage, int left, const std::function<void()>& each) {
  if (stage + 1 == counts.size()) {
    counts[stage] = left;
    return each();
  }
  for (counts[stage] = 1; counts[stage] <= left - static_cast<int>(counts.size() - stage - 1); ++counts[stage])
    try_all_ways(counts, stage + 1, left - counts[stage], each);
}

TEST(DistributeLayers, BalancedIsTheBestOfAllWays) {
  for (const auto& [first, last] : {std::pair(0.3, 1.4), std::pair(0.0, 0.0), std::pair(0.1, 4.5), std::pair(2.5, 0.5)})
    for (const int stages : {1, 2, 3, 4})
      for (int layers = stages; layers <= 9; ++layers) {
        const auto found = loads(distribute_layers_balanced(layers, stages, first, last), first, last);
        Counts counts(stages);
        try_all_ways(counts, 0, layers, [&, first = first, last = last] {
          const auto other = loads(counts, first, last);
          for (std::size_t i = 0; i < found.size(); ++i) {
            ASSERT_LE(found[i], other[i] + 1e-9) << ::testing::PrintToString(counts);
            if (found[i] < other[i] - 1e-9) break;
          }
        });
      }
}

TEST(DistributeLayers, BalancedHoldsEveryLayerOnce) {
  EXPECT_EQ(distribute_layers_balanced(30, 4, 0.1, 1), (Counts{7, 8, 8, 7}));
  const Counts large = distribute_layers_balanced(80, 32, 0.1, 1);
  EXPECT_EQ(std::accumulate(large.begin(), large.end(), 0), 80);
  EXPECT_EQ(large.front(), 2);
  EXPECT_EQ(large.back(), 2);
  EXPECT_EQ(*std::max_element(large.begin(), large.end()), 3);
  EXPECT_EQ(distribute_layers_balanced(8, 3, 0, 100), (Counts{3, 4, 1}));
  EXPECT_THROW(distribute_layers_balanced(3, 4, 0.1, 1), ConfigError);
}

TEST(LayoutString, ReadsMegatronsFormAndPointsAtFaults) {
  EXPECT_EQ(parse_layout_string("Et*3|(tt|)*2tt|L"), (Counts{3, 2, 2, 2, 0}));
  EXPECT_EQ(parse_layout_string("Et,t|tL"), (Counts{2, 1}));
  for (const char* wrong : {"t|L", "Et", "Et|m|L", "E(t|L", "Et)L", "Et*|L", "Ex|L", "EtLt", "Et*999999999L"})
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
  EXPECT_EQ(layers_per_stage(schedule, 10, 4), (Counts{2, 3, 3, 2}));
  schedule.layers.emplace<std::string>("balanced");
  EXPECT_EQ(layers_per_stage(schedule, 9, 2), (Counts{5, 4}));
  schedule.layers.emplace<std::string>("Ett|tL");
  EXPECT_EQ(layers_per_stage(schedule, 3, 2), (Counts{2, 1}));
  schedule.layers.emplace<Counts>({1, 2});
  EXPECT_EQ(layers_per_stage(schedule, 3, 2), (Counts{1, 2}));
}

TEST(ScheduleChoice, TheHeadIsWeighedByItsMatrix) {
  const auto gpt2 = end_costs_in({{"n_embd", 768}, {"n_head", 12}, {"n_inner", nullptr}, {"vocab_size", 50257}});
  EXPECT_NEAR(gpt2.head, 50257.0 / (12 * 768), 1e-12);
  // Llama 3 8B: 32 heads of 128, 8 key heads, a gated feed-forward of 14336.
  const auto llama = end_costs_in({{"hidden_size", 4096},
                                   {"num_attention_heads", 32},
                                   {"num_key_value_heads", 8},
                                   {"intermediate_size", 14336},
                                   {"rms_norm_eps", 1e-5},
                                   {"vocab_size", 128256}});
  EXPECT_NEAR(llama.head, 128256.0 / (2.5 * 4096 + 3 * 14336), 1e-12);
  for (const nlohmann::json& keys : {nlohmann::json::object(), nlohmann::json(3), nlohmann::json{{"n_embd", "x"}}})
    EXPECT_EQ(end_costs_in(keys).head, EndCosts{}.head);
  ScheduleConfig schedule;
  schedule.layers.emplace<std::string>("balanced");
  EXPECT_EQ(layers_per_stage(schedule, 12, 4, gpt2), (Counts{3, 4, 4, 1}));
}

TEST(LayerRanges, RefusesCountsThatDoNotAddUp) {
  EXPECT_EQ(layer_ranges({2, 0, 3}, 5, 3)[2].begin, 2);
  EXPECT_THROW(layer_ranges({2, 2}, 5, 2), ConfigError);
  EXPECT_THROW(layer_ranges({5}, 5, 2), ConfigError);
}

}  // namespace
}  // namespace gantry
