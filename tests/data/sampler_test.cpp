// The order of samples: each sample occurs once per epoch, in every layout and from every starting position.
#include "gantry/data/sampler.h"

#include <gtest/gtest.h>
#include <set>

#include "gantry/data/loader.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// True if the positions [first, first + size) hold each of 0 .. size - 1 once.
template <class Sample>
bool is_permutation_of(std::int64_t size, std::int64_t first, Sample&& sample) {
  std::vector<bool> seen(static_cast<std::size_t>(size));
  for (std::int64_t i = first; i < first + size; ++i) {
    const std::int64_t at = sample(i);
    if (at < 0 || at >= size || seen[static_cast<std::size_t>(at)]) return false;
    seen[static_cast<std::size_t>(at)] = true;
  }
  return true;
}

TEST(Sampler, EverySampleOnceAnEpochForAllSizesTo300) {
  for (std::int64_t size = 1; size <= 300; ++size)
    for (const std::uint64_t seed : {0ull, 1ull, 0xFFFFFFFFFFFFFFFFull}) {
      const Sampler sampler(size, true, seed);
      for (const std::int64_t epoch : {0, 1, 2, 1000000})
        ASSERT_TRUE(is_permutation_of(size, epoch * size, [&](auto i) { return sampler.sample(i); }))
            << size << " samples, seed " << seed << ", epoch " << epoch;
    }
}

TEST(Sampler, EverySampleOnceAnEpochForPrimesAbove2To20) {
  for (const std::int64_t size : {1048583, 1299709}) {
    const Sampler sampler(size, true, 3);
    ASSERT_TRUE(is_permutation_of(size, size, [&](auto i) { return sampler.sample(i); })) << size;
  }
}

TEST(Sampler, EpochsAndSeedsGiveOtherOrders) {
  constexpr std::int64_t kSize = 64;
  std::set<std::vector<std::int64_t>> orders;
  for (const std::uint64_t seed : {1, 2, 3})
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
      const Sampler sampler(kSize, true, seed);
      std::vector<std::int64_t> order;
      for (std::int64_t i = 0; i < kSize; ++i) order.push_back(sampler.sample(epoch * kSize + i));
      orders.insert(order);
    }
  EXPECT_EQ(orders.size(), 12u);
  EXPECT_EQ(Sampler(5, false, 1).sample(12), 2);
}

// Neighbours of the order are not neighbours in the data: of 1000 steps, about 2 are by one.
TEST(Sampler, ShufflingLeavesNoRuns) {
  constexpr std::int64_t kSize = 1000;
  const Sampler sampler(kSize, true, 5);
  int neighbours = 0;
  for (std::int64_t i = 1; i < kSize; ++i) neighbours += std::abs(sampler.sample(i) - sampler.sample(i - 1)) == 1;
  EXPECT_LT(neighbours, 12);
}

struct BlendCase {
  std::vector<SampledSource> sources;
};

TEST(BlendedSampler, EachSourceGivesEverySampleOnceInEachOfItsEpochs) {
  for (const auto& [sources] :
       {BlendCase{{{7, 1}}}, BlendCase{{{1, 1}, {300, 1}}}, BlendCase{{{13, 0.7}, {29, 0.2}, {5, 0.1}}},
        BlendCase{{{64, 3}, {64, 3}, {1, 0.01}}}}) {
    const BlendedSampler sampler(sources, true, 11);
    std::vector<std::vector<std::int64_t>> given(sources.size());
    for (std::int64_t i = 0; i < 4000; ++i) {
      const auto [source, sample] = sampler.sample(i);
      given[static_cast<std::size_t>(source)].push_back(sample);
    }
    for (std::size_t s = 0; s < sources.size(); ++s) {
      const std::int64_t size = sources[s].size, full = static_cast<std::int64_t>(given[s].size()) / size;
      for (std::int64_t epoch = 0; epoch < full; ++epoch)
        ASSERT_TRUE(is_permutation_of(size, epoch * size, [&](auto i) { return given[s][i]; }))
            << "source " << s << " epoch " << epoch;
    }
  }
}

TEST(BlendedSampler, SourcesOfOneSizeAreShuffledApart) {
  const BlendedSampler sampler({{50, 1}, {50, 1}}, true, 1);
  std::vector<std::vector<std::int64_t>> given(2);
  for (std::int64_t i = 0; i < 100; ++i) given[sampler.sample(i).source].push_back(sampler.sample(i).sample);
  EXPECT_EQ(given[0].size(), 50u);
  EXPECT_NE(given[0], given[1]);
}

TEST(BlendedSampler, OneSourceIsAPlainSampler) {
  const BlendedSampler blended({{37, 0.3}}, true, 9);
  const Sampler plain(37, true, 9);
  for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(blended.sample(i), (SourceSample{0, plain.sample(i)}));
}

// Sample i of source s is the number 1000 s + i.
class SourcedNumbers final : public Dataset {
 public:
  SourcedNumbers(std::int64_t source, std::int64_t size) : source_(source), size_(size) {}
  std::int64_t size() const override { return size_; }
  std::int64_t sequence_length() const override { return 1; }
  void read(std::int64_t index, std::int64_t* tokens) const override { tokens[0] = tokens[1] = 1000 * source_ + index; }

 private:
  std::int64_t source_, size_;
};

// Returns the samples that a run reads with this batch size and number of replicas, after a restart at
// `from`.
std::vector<std::int64_t> order_of(const SampleSource& source, std::int64_t batch, int replicas, std::int64_t from,
                                   std::int64_t to) {
  std::vector<std::int64_t> order;
  for (std::int64_t first = from; first < to; first += batch)
    for (int replica = 0; replica < replicas; ++replica) {
      const Loader loader(source, {.replicas = replicas, .replica = replica, .seed = 4});
      const Batch part = loader.batch(first, batch);
      const torch::Tensor ids = part.tensors.at("input_ids");
      for (std::int64_t i = 0; i < part.samples; ++i) order.push_back(ids[i][0].item<std::int64_t>());
    }
  order.resize(static_cast<std::size_t>(to - from));
  return order;
}

TEST(SampleOrder, DoesNotDependOnReplicasBatchesOrARestart) {
  const SampleSource one{next_token_entries(1), 1, [](const OpenProgress&) {
                           return std::vector<WeightedDataset>{{std::make_shared<SourcedNumbers>(0, 31), 1}};
                         }};
  const SampleSource blend{next_token_entries(1), 1, [](const OpenProgress&) {
                             return std::vector<WeightedDataset>{{std::make_shared<SourcedNumbers>(0, 31), 0.6},
                                                                 {std::make_shared<SourcedNumbers>(1, 7), 0.3},
                                                                 {std::make_shared<SourcedNumbers>(2, 100), 0.1}};
                           }};
  constexpr std::int64_t kSamples = 200;
  for (const auto& source : {one, blend}) {
    const auto expected = order_of(source, 1, 1, 0, kSamples);
    for (const std::int64_t batch : {2, 7, 12, 64})
      for (const int replicas : {1, 2, 3, 4})
        for (const std::int64_t from : {0, 1, 50, 97}) {
          const std::vector<std::int64_t> rest(expected.begin() + from, expected.end());
          EXPECT_EQ(order_of(source, batch, replicas, from, kSamples), rest)
              << "batch " << batch << ", " << replicas << " replicas, from " << from;
        }
  }
}

}  // namespace
}  // namespace gantry
