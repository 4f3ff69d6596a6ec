#include "gantry/schedule/layer_work.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "gantry/core/error.h"
#include "gantry/schedule/stages/stage_search.h"

namespace gantry {
namespace {

using StageCounts = std::vector<int>;

StageCounts one_stage_a_rank(int ranks) {
  StageCounts ranks_of_stage(ranks);
  std::iota(ranks_of_stage.begin(), ranks_of_stage.end(), 0);
  return ranks_of_stage;
}

StageCounts looped(int ranks, int chunks) {
  StageCounts ranks_of_stage;
  for (int stage = 0; stage < ranks * chunks; ++stage) ranks_of_stage.push_back(stage % ranks);
  return ranks_of_stage;
}

StageCounts forth_and_back(int ranks) {
  StageCounts ranks_of_stage;
  for (int stage = 0; stage < 2 * ranks; ++stage) ranks_of_stage.push_back(std::min(stage, 2 * ranks - 1 - stage));
  return ranks_of_stage;
}

using HeaviestOf = std::pair<double, double>;  // rank, and stage

HeaviestOf heaviest_of(const LayerWork& work, const StageCounts& counts, const StageCounts& rank_of_stage) {
  const auto on_stage = work_of_stages(work, counts);
  return {std::ranges::max(work_of_ranks(on_stage, rank_of_stage)), std::ranges::max(on_stage)};
}

void try_all_counts(StageCounts& counts, std::size_t stage, int left, bool last_may_be_empty,
                    const std::function<void()>& each) {
  if (stage + 1 == counts.size()) {
    counts[stage] = left;
    if (left > 0 || last_may_be_empty) each();
    return;
  }
  for (int here = 1; here <= left; ++here) {
    counts[stage] = here;
    try_all_counts(counts, stage + 1, left - here, last_may_be_empty, each);
  }
}

// Compares the heaviest rank first, then the heaviest stage. Ranks that differ only by rounding are equal.
HeaviestOf best_of_all(const LayerWork& work, const StageCounts& rank_of_stage) {
  HeaviestOf best{1e300, 1e300};
  StageCounts counts(rank_of_stage.size());
  const bool last_may_be_empty = work.last > 0 && counts.size() > 1;
  try_all_counts(counts, 0, static_cast<int>(work.layers.size()), last_may_be_empty, [&] {
    const HeaviestOf found = heaviest_of(work, counts, rank_of_stage);
    const bool same = std::abs(found.first - best.first) < 1e-9;
    if (same ? found.second < best.second : found.first < best.first) best = found;
  });
  return best;
}

void expect_best(const LayerWork& work, const StageCounts& rank_of_stage) {
  const StageCounts found = distribute_by_work(work, rank_of_stage);
  EXPECT_EQ(std::accumulate(found.begin(), found.end(), 0), static_cast<int>(work.layers.size()));
  const HeaviestOf ours = heaviest_of(work, found, rank_of_stage), best = best_of_all(work, rank_of_stage);
  SCOPED_TRACE(::testing::PrintToString(found) + " of " + ::testing::PrintToString(rank_of_stage));
  EXPECT_NEAR(ours.first, best.first, 1e-9);
  EXPECT_NEAR(ours.second, best.second, 1e-9);
}

// GPT-2 with four layers. The work is the number of elements of the matrices.
const LayerWork kGpt2 = {.layers = std::vector<double>(4, 12.0 * 768 * 768), .last = 50257.0 * 768};

TEST(LayerWork, AHeadOfFiveLayersHasAStageOfItsOwn) {
  const LayerWork& work = kGpt2;
  EXPECT_NEAR(work.last / work.layers[0], 50257.0 / (12 * 768), 1e-12);
  EXPECT_EQ(distribute_by_work(work, one_stage_a_rank(2)), (StageCounts{4, 0}));
  const StageCounts even = {2, 2}, found = {4, 0};
  EXPECT_NEAR(evenness(work_of_ranks(work_of_stages(work, even), {0, 1})), 0.634, 0.001);
  EXPECT_NEAR(evenness(work_of_ranks(work_of_stages(work, found), {0, 1})), 0.867, 0.001);
}

TEST(LayerWork, EqualLayersHaveTheBestOfAllWays) {
  for (const double last : {0.0, 0.4, 1.4, 5.45})
    for (const double first : {0.0, 0.3, 2.5})
      for (int layers = 6; layers <= 9; ++layers) {
        const LayerWork work{std::vector<double>(layers, 1.0), first, last};
        for (int ranks = 1; ranks <= 4; ++ranks) expect_best(work, one_stage_a_rank(ranks));
        for (const int ranks : {2, 3}) {
          expect_best(work, looped(ranks, 2));
          expect_best(work, forth_and_back(ranks));
        }
        expect_best(work, looped(2, 3));
      }
}

// Returns layers by `kind`: 0 measured times, 1 two kinds of layers, 2 also layers that cost nothing.
LayerWork unequal_layers(int kind, std::size_t layers, std::mt19937& random) {
  std::uniform_real_distribution<double> time(0.5, 2);
  LayerWork work{{}, time(random), random() % 2 == 0 ? 0 : 3 * time(random)};
  for (std::size_t layer = 0; layer < layers; ++layer)
    work.layers.push_back(kind == 0 ? time(random) : kind == 1 ? 1 + 9 * (random() % 4 == 0) : random() % 3);
  return work;
}

TEST(LayerWork, UnequalLayersHaveTheBestOfAllWays) {
  std::mt19937 random(3);
  const std::vector<StageCounts> several = {looped(2, 2),      looped(3, 2),       looped(2, 3), forth_and_back(2),
                                            forth_and_back(3), {0, 1, 1, 0, 0, 1}, {0, 0, 1, 1}, {1, 0, 2, 0, 1, 2},
                                            {0, 1, 0},         {0, 0, 2}};
  for (int i = 0; i < 90; ++i) {
    for (int ranks = 1; ranks <= 4; ++ranks)
      expect_best(unequal_layers(i % 3, 5 + i % 5, random), one_stage_a_rank(ranks));
    for (const auto& rank_of_stage : several)
      expect_best(unequal_layers(i % 3, rank_of_stage.size() + i % 5, random), rank_of_stage);
  }
}

// With 128 layers over 16 ranks, the search for a lighter partition ends and finds none.
TEST(LayerWork, NothingIsBetterThanTwoStagesOfRealSizes) {
  std::mt19937 random(1);
  for (const int kind : {0, 1})
    for (const auto& rank_of_stage : {looped(16, 2), forth_and_back(16)}) {
      const LayerWork work = unequal_layers(kind, 128, random);
      const auto [rank, stage] = heaviest_of(work, distribute_by_work(work, rank_of_stage), rank_of_stage);
      std::int64_t steps = 100'000'000;
      EXPECT_FALSE(search_stages({work, rank_of_stage}, {.most_on_rank = rank * (1 - 1e-12), .around = {}}, steps));
      EXPECT_FALSE(search_stages({work, rank_of_stage},
                                 {.what = Lightest::kStage,
                                  .most_on_rank = rank * (1 + 1e-12),
                                  .most_on_stage = stage * (1 - 1e-12),
                                  .around = {}},
                                 steps));
      EXPECT_GT(steps, 0);
    }
}

// Four stages per rank have too many partitions to try all of them. The partition that is found is still
// almost even.
TEST(LayerWork, ASearchHasABoundedNumberOfSteps) {
  std::mt19937 random(1);
  const LayerWork work = unequal_layers(0, 128, random);
  std::int64_t steps = 100'000;
  EXPECT_FALSE(search_stages({work, looped(16, 4)}, {}, steps));
  EXPECT_LT(steps, 0);
  EXPECT_GT(steps, -100);
  const auto on_stage = work_of_stages(work, distribute_by_work(work, looped(16, 4)));
  EXPECT_GT(evenness(work_of_ranks(on_stage, looped(16, 4))), 0.97);
}

TEST(LayerWork, MustBeNumbersOfAtLeastZero) {
  EXPECT_THROW(distribute_by_work({{1, -1, 1}}, one_stage_a_rank(2)), ConfigError);
  EXPECT_THROW(distribute_by_work({{1, 1}, std::nan("")}, one_stage_a_rank(2)), ConfigError);
  EXPECT_THROW(distribute_by_work({{1, 1}, 0, HUGE_VAL}, one_stage_a_rank(2)), ConfigError);
}

TEST(LayerWork, TiesGoToLaterStages) {
  EXPECT_EQ(distribute_by_work({std::vector<double>(9, 1.0)}, one_stage_a_rank(2)), (StageCounts{4, 5}));
  EXPECT_EQ(distribute_by_work({std::vector<double>(6, 1.0)}, one_stage_a_rank(4)), (StageCounts{1, 1, 2, 2}));
}

TEST(LayerWork, EveryStageHasALayerButOneWithTheHead) {
  const LayerWork plain{std::vector<double>(3, 1.0)}, headed{std::vector<double>(3, 1.0), 0, 2};
  EXPECT_THROW(distribute_by_work(plain, one_stage_a_rank(4)), ConfigError);
  EXPECT_EQ(distribute_by_work(headed, one_stage_a_rank(4)), (StageCounts{1, 1, 1, 0}));
  EXPECT_THROW(distribute_by_work(headed, one_stage_a_rank(5)), ConfigError);
}

}  // namespace
}  // namespace gantry
