// The tokens of a sample: packed documents, and a blend of several sources.
#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>

#include "gantry/core/error.h"
#include "gantry/data/corpus/blend.h"
#include "gantry/data/corpus/packed_sequences.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> boundaries_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> boundaries{0};
  for (const auto length : lengths) boundaries.push_back(boundaries.back() + length);
  return boundaries;
}

TEST(PackedSequences, SamplesCrossDocuments) {
  const auto boundaries = boundaries_of({3, 0, 1, 6, 0, 0, 2});
  const PackedSequences packed(boundaries, 4);
  ASSERT_EQ(packed.size(), 2);
  EXPECT_THAT(packed.runs(0), ElementsAre(TokenRun{0, 0, 3}, TokenRun{2, 0, 1}, TokenRun{3, 0, 1}));
  EXPECT_THAT(packed.runs(1), ElementsAre(TokenRun{3, 0, 5}));
  EXPECT_THROW(packed.runs(2), UsageError);
  EXPECT_THROW(packed.runs(-1), UsageError);
}

// Comparison with the list of all tokens, which PackedSequences does not build.
TEST(PackedSequences, EqualTheRowOfAllTokens) {
  std::uint32_t state = 3;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> lengths;
    for (int d = 0; d < 1 + round % 17; ++d) lengths.push_back((state = state * 1664525 + 1013904223) >> 28);
    const auto boundaries = boundaries_of(lengths);
    std::vector<std::pair<std::int64_t, std::int64_t>> row;
    for (std::size_t d = 0; d < lengths.size(); ++d)
      for (std::int64_t t = 0; t < lengths[d]; ++t) row.emplace_back(d, t);
    const std::int64_t length = 1 + round % 9;
    const PackedSequences packed(boundaries, length);
    EXPECT_EQ(packed.size(), row.empty() ? 0 : (static_cast<std::int64_t>(row.size()) - 1) / length);
    for (std::int64_t sample = 0; sample < packed.size(); ++sample) {
      std::vector<std::pair<std::int64_t, std::int64_t>> got;
      for (const auto& run : packed.runs(sample))
        for (std::int64_t t = 0; t < run.count; ++t) got.emplace_back(run.document, run.offset + t);
      const auto begin = row.begin() + sample * length;
      EXPECT_EQ(got, decltype(row)(begin, begin + length + 1));
    }
  }
}

TEST(PackedSequences, SubspansHoldDocumentsOut) {
  const auto boundaries = boundaries_of({5, 4, 7, 3});
  const std::span<const std::int64_t> all(boundaries);
  const PackedSequences training(all.first(3), 4), held_out(all.subspan(2), 4);
  EXPECT_EQ(training.size(), 2);  // 9 tokens
  EXPECT_EQ(held_out.size(), 2);  // 10 tokens
  EXPECT_THAT(held_out.runs(1), ElementsAre(TokenRun{0, 4, 3}, TokenRun{1, 0, 2}));
}

TEST(PackedSequences, FewTokensGiveNoSample) {
  const std::vector<std::int64_t> none{0}, one{0, 1}, enough{0, 5};
  EXPECT_EQ(PackedSequences(none, 4).size(), 0);
  EXPECT_EQ(PackedSequences(one, 1).size(), 0);
  EXPECT_EQ(PackedSequences(enough, 4).size(), 1);
  EXPECT_THROW(PackedSequences({}, 4), UsageError);
  EXPECT_THROW(PackedSequences(one, 0), UsageError);
}

TEST(PackedSequences, BillionsOfTokensNeedNoList) {
  std::vector<std::int64_t> boundaries{0};
  for (int d = 1; d <= 1000; ++d) boundaries.push_back(d * 5'000'000'000LL);
  const PackedSequences packed(boundaries, 4096);
  EXPECT_EQ(packed.size(), (5'000'000'000'000LL - 1) / 4096);
  const std::int64_t last = packed.size() - 1;
  EXPECT_THAT(packed.runs(last), ElementsAre(TokenRun{999, last * 4096 - 999 * 5'000'000'000LL, 4097}));
}

// Returns the largest difference between a source's count and its share, over all prefixes.
template <class Next>
double largest_error(const std::vector<double>& weights, std::int64_t items, Next next) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> counts(weights.size());
  double error = 0;
  for (std::int64_t i = 1; i <= items; ++i) {
    ++counts[static_cast<std::size_t>(next(i - 1, counts))];
    for (std::size_t s = 0; s < weights.size(); ++s)
      error = std::max(error, std::abs(static_cast<double>(counts[s]) - static_cast<double>(i) * weights[s] / all));
  }
  return error;
}

// Megatron's choice: the source that is furthest behind its share.
int most_behind(const std::vector<double>& weights, std::int64_t position, const std::vector<std::int64_t>& counts) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto behind = [&](std::size_t s) {
    return weights[s] / all * static_cast<double>(std::max<std::int64_t>(position, 1)) - static_cast<double>(counts[s]);
  };
  std::size_t most = 0;
  for (std::size_t s = 1; s < weights.size(); ++s)
    if (behind(s) > behind(most)) most = s;
  return static_cast<int>(most);
}

std::vector<std::vector<double>> weight_sets() {
  std::vector<std::vector<double>> sets{{1}, {1, 1}, {0.7, 0.3}, {3, 2, 1}, {0.9, 0.05, 0.03, 0.02}, {1e-9, 1}};
  std::vector<double> steep, even(37, 1.0), tail{0.9};
  for (int s = 0; s < 20; ++s) steep.push_back(std::pow(0.6, s));
  for (int s = 0; s < 100; ++s) tail.push_back(0.001);
  sets.insert(sets.end(), {steep, even, tail});
  std::uint32_t state = 5;
  for (int round = 0; round < 20; ++round) {
    std::vector<double> random;
    for (int s = 0; s < 2 + round; ++s) random.push_back(1 + ((state = state * 1664525 + 1013904223) >> 24));
    sets.push_back(random);
  }
  return sets;
}

TEST(Blend, EverySourceKeepsToItsShareAsInMegatron) {
  double ours = 0, megatrons = 0;
  for (const auto& weights : weight_sets()) {
    const Blend blend(weights);
    ours = std::max(ours, largest_error(weights, 20000, [&](auto i, const auto&) { return blend.item(i).source; }));
    megatrons = std::max(megatrons, largest_error(weights, 20000, [&](auto i, const auto& counts) {
                           return most_behind(weights, i, counts);
                         }));
  }
  RecordProperty("largest_error", std::to_string(ours));
  RecordProperty("largest_error_of_megatron", std::to_string(megatrons));
  EXPECT_LT(ours, 2);  // the bound of blend.h
  EXPECT_LT(ours, megatrons + 1);
}

TEST(Blend, ItemsOfASourceCountUp) {
  for (const auto& weights : weight_sets()) {
    const Blend blend(weights);
    std::vector<std::int64_t> counts(weights.size());
    for (std::int64_t i = 0; i < 3000; ++i) {
      if (i % 100 == 0) EXPECT_EQ(blend.counts(i), counts);
      const auto [source, index] = blend.item(i);
      EXPECT_EQ(index, counts[static_cast<std::size_t>(source)]++);
    }
  }
}

TEST(Blend, FarItemsAreFoundAtOnce) {
  const std::vector<double> weights{5, 3, 2};
  const Blend blend(weights);
  const std::int64_t far = 1'000'000'000'000'000;
  const auto before = blend.counts(far);
  EXPECT_EQ(before[0] + before[1] + before[2], far);
  for (std::size_t s = 0; s < 3; ++s) EXPECT_NEAR(static_cast<double>(before[s]), 1e14 * weights[s], 2);
  const auto [source, index] = blend.item(far);
  EXPECT_EQ(index, before[static_cast<std::size_t>(source)]);
}

TEST(Blend, WeightsThatMeanNothingAreRefused) {
  const double infinity = std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::max();
  for (const auto& weights : std::vector<std::vector<double>>{{}, {0, 0}, {1, -1}, {1, infinity}, {1, std::nan("")}})
    EXPECT_THROW(Blend{weights}, ConfigError);
  EXPECT_EQ(Blend({0, 1, 0}).counts(10), (std::vector<std::int64_t>{0, 10, 0}));
  EXPECT_EQ(Blend({most, most}).counts(10), (std::vector<std::int64_t>{5, 5}));
  EXPECT_EQ(Blend({1, 1e-320, 1e-320}).counts(10)[0], 10);
}

}  // namespace
}  // namespace gantry
