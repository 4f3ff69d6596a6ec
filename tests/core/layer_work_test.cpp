#include "gantry/core/layer_work.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "gantry/core/error.h"

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

double heaviest_rank(const LayerWork& work, const StageCounts& counts, const StageCounts& rank_of_stage) {
  return std::ranges::max(work_of_ranks(work_of_stages(work, counts), rank_of_stage));
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

double best_of_all(const LayerWork& work, const StageCounts& rank_of_stage) {
  double best = 1e300;
  StageCounts counts(rank_of_stage.size());
  const bool last_may_be_empty = work.last > 0 && counts.size() > 1;
  try_all_counts(counts, 0, static_cast<int>(work.layers.size()), last_may_be_empty,
                 [&] { best = std::min(best, heaviest_rank(work, counts, rank_of_stage)); });
  return best;
}

void expect_best(const LayerWork& work, const StageCounts& rank_of_stage) {
  const StageCounts found = distribute_by_work(work, rank_of_stage);
  EXPECT_EQ(std::accumulate(found.begin(), found.end(), 0), static_cast<int>(work.layers.size()));
  EXPECT_NEAR(heaviest_rank(work, found, rank_of_stage), best_of_all(work, rank_of_stage), 1e-9)
      << ::testing::PrintToString(found) << " of " << ::testing::PrintToString(rank_of_stage);
}

const nlohmann::json kGpt2 = {{"n_embd", 768}, {"n_head", 12}, {"n_layer", 4}, {"vocab_size", 50257}};

TEST(LayerWork, AHeadOfFiveLayersHasAStageOfItsOwn) {
  const LayerWork work = layer_work_in(kGpt2, 4);
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

TEST(LayerWork, MeasuredLayersHaveTheBestOfAllWays) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> time(0.5, 2);
  for (int i = 0; i < 40; ++i) {
    LayerWork work{{}, time(random), i % 2 == 0 ? 0 : 3 * time(random)};
    for (int layer = 0; layer < 5 + i % 5; ++layer) work.layers.push_back(time(random));
    for (int ranks = 1; ranks <= 4; ++ranks) expect_best(work, one_stage_a_rank(ranks));
    // With several stages a rank no worse than the lightest stages.
    const StageCounts found = distribute_by_work(work, forth_and_back(2));
    EXPECT_LE(heaviest_rank(work, found, forth_and_back(2)),
              heaviest_rank(work, distribute_by_work(work, one_stage_a_rank(4)), forth_and_back(2)) + 1e-9);
  }
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

TEST(LayerWork, IsTheMatricesThatTheKeysState) {
  // Llama 3 8B: 32 heads of 128, 8 key heads, a gated feed-forward of 14336.
  const LayerWork llama = layer_work_in({{"hidden_size", 4096},
                                         {"num_attention_heads", 32},
                                         {"num_key_value_heads", 8},
                                         {"intermediate_size", 14336},
                                         {"rms_norm_eps", 1e-5},
                                         {"vocab_size", 128256}},
                                        2);
  EXPECT_NEAR(llama.last / llama.layers[1], 128256.0 / (2.5 * 4096 + 3 * 14336), 1e-12);
  nlohmann::json bert = {{"hidden_size", 768}, {"type_vocab_size", 2}, {"vocab_size", 30522}};
  EXPECT_EQ(layer_work_in(bert, 1).last, 768.0 * (30522 + 768));
  bert["architectures"] = {"BertForQuestionAnswering"};
  EXPECT_EQ(layer_work_in(bert, 1).last, 768.0 * 2);
  for (const nlohmann::json& keys : {nlohmann::json::object(), nlohmann::json(3), nlohmann::json{{"n_embd", "x"}}}) {
    EXPECT_EQ(layer_work_in(keys, 3).last, 0);
    EXPECT_EQ(layer_work_in(keys, 3).layers, (std::vector<double>{1, 1, 1}));
  }
}

}  // namespace
}  // namespace gantry
