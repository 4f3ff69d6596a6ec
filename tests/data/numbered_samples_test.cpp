// Samples that know their number.
#include "gantry/data/numbered_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/data/data_loader.h"
#include "gantry/data/drawn_dataset.h"
#include "gantry/data/sample_digest.h"
#include "gantry/tensors/libtorch.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sample i has the tokens base + i, base + i + 1, ...
class CountedTokens : public Dataset {
 public:
  CountedTokens(std::int64_t size, std::int64_t base) : size_(size), base_(base) {}
  std::int64_t size() const override { return size_; }
  std::int64_t sequence_length() const override { return 3; }
  void read(std::int64_t index, std::int64_t* tokens) const override {
    for (std::int64_t i = 0; i < 4; ++i) tokens[i] = base_ + index + i;
  }

 private:
  std::int64_t size_, base_;
};

class DrawnTokens final : public DrawnDataset {
 public:
  std::int64_t size() const override { return 2; }
  std::int64_t sequence_length() const override { return 3; }
  void read_at(std::int64_t, std::int64_t, const NumberRow&) const override {}
};

SampleSource counted(std::vector<std::int64_t> bases) {
  return {.entries = next_token_entries(3), .sequence_length = 3, .open = [bases](const OpenProgress&) {
            std::vector<WeightedDataset> sets;
            for (const std::int64_t base : bases)
              sets.push_back({std::make_shared<CountedTokens>(2 + base / 10, base)});
            return sets;
          }};
}

std::vector<std::int64_t> int64_values(const torch::Tensor& tensor) {
  return {tensor.const_data_ptr<std::int64_t>(), tensor.const_data_ptr<std::int64_t>() + tensor.numel()};
}

Batch whole(const SampleSource& source, std::int64_t samples, bool shuffle) {
  return DataLoader(source, {.global_batch = samples, .shuffle = shuffle}).batch(0);
}

TEST(NumberedSamples, CountOverAllDataSets) {
  const SampleSource source = numbered_samples(counted({10, 20}), /*held_out=*/false, "key");
  const Batch ordered = whole(samples_in_order(source), 7, /*shuffle=*/false);
  EXPECT_THAT(int64_values(ordered.tensors.at(kSampleNumbers)), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  const auto first_tokens = int64_values(ordered.tensors.at("input_ids").select(1, 0).contiguous());
  EXPECT_THAT(first_tokens, ElementsAre(10, 11, 12, 20, 21, 22, 23));
  // In any order, a number finds the tokens of its sample.
  const Batch blended = whole(source, 12, /*shuffle=*/true);
  const auto numbers = int64_values(blended.tensors.at(kSampleNumbers)),
             tokens = int64_values(blended.tensors.at("input_ids").select(1, 0).contiguous());
  for (std::size_t i = 0; i < numbers.size(); ++i)
    EXPECT_EQ(tokens[i], first_tokens.at(static_cast<std::size_t>(numbers[i])));
}

TEST(NumberedSamples, OfHeldOutDataAreNegative) {
  const SampleSource source = numbered_samples(counted({10}), /*held_out=*/true, "key");
  EXPECT_THAT(int64_values(whole(source, 3, false).tensors.at(kSampleNumbers)), ElementsAre(-1, -2, -3));
}

TEST(NumberedSamples, DigestIsThatOfTheNumbers) {
  const auto digest = [](const SampleSource& source) {
    return sample_digest(samples_in_order(source), 1, no_progress);
  };
  EXPECT_EQ(digest(counted({10})).size(), 32u);
  EXPECT_EQ(digest(counted({10, 20})), digest(counted({10, 20})));
  EXPECT_NE(digest(counted({10, 20})), digest(counted({20, 10})));
  EXPECT_NE(digest(counted({10})), digest(counted({11})));
}

TEST(NumberedSamples, RefuseSamplesThatDiffer) {
  const SampleSource drawn{.entries = next_token_entries(3), .sequence_length = 3, .open = [](const OpenProgress&) {
                             return std::vector<WeightedDataset>{{std::make_shared<DrawnTokens>()}};
                           }};
  EXPECT_THAT(thrown_by<ConfigError>([&] { numbered_samples(drawn, false, "a.key").open(no_progress); }),
              HasSubstr("a.key: the samples of the data differ in each pass"));
  SampleSource collated = counted({10});
  collated.collate = [](const std::vector<TensorDict>& samples) { return samples.front(); };
  EXPECT_THAT(thrown_by<ConfigError>([&] { numbered_samples(collated, false, "a.key"); }),
              HasSubstr("a.key: the data have images, whose samples differ in length"));
}

}  // namespace
}  // namespace gantry::testing
