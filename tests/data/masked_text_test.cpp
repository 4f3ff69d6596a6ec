// Rows with masked tokens.
#include "gantry/data/masked_text.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <numeric>

#include "gantry/core/error.h"
#include "gantry/data/drawn_dataset.h"

namespace gantry::testing {
namespace {

constexpr std::int64_t kLength = 1000, kMask = 4, kTokens = 642;

// Rows of the tokens 0, 1, 2, ... without end.
class CountingRows final : public Dataset {
 public:
  std::int64_t size() const override { return 5; }
  std::int64_t sequence_length() const override { return kLength; }
  void read(std::int64_t index, std::int64_t* numbers) const override {
    for (std::int64_t i = 0; i <= kLength; ++i) numbers[i] = (index * kLength + i) % kTokens;
  }
};

Masking masking_of(double probability, std::uint64_t seed = 3) {
  Masking masking{.probability = probability, .mask_token = kMask, .tokens = kTokens, .seed = seed};
  masking.special.assign(kTokens, false);
  for (const std::int64_t id : {0, 1, 2, 3, 4}) masking.special[static_cast<std::size_t>(id)] = true;
  return masking;
}

struct MaskedRow {
  std::vector<std::int64_t> ids, labels;
  bool operator==(const MaskedRow&) const = default;
};

MaskedRow row_at(std::int64_t index, std::int64_t place, const Masking& masking) {
  const SampleSource source = mask_tokens(
      {.entries = next_token_entries(kLength),
       .sequence_length = kLength,
       .open = [](const OpenProgress&) { return std::vector<WeightedDataset>{{std::make_shared<CountingRows>()}}; }},
      masking);
  EXPECT_EQ(source.entries[1].first, kLength);
  const auto datasets = source.open(no_progress);
  std::vector<std::int64_t> row(2 * kLength);
  dynamic_cast<const DrawnDataset&>(*datasets.front().dataset)
      .read_at(index, place, NumberRow(NumberType::kInt64, reinterpret_cast<std::byte*>(row.data())));
  return {{row.begin(), row.begin() + kLength}, {row.begin() + kLength, row.end()}};
}

TEST(MaskedText, LabelsAreTheTokensThatWereChosen) {
  std::int64_t chosen = 0, masked = 0, kept = 0;
  for (std::int64_t place = 0; place < 100; ++place) {
    const MaskedRow row = row_at(place % 5, place, masking_of(0.15));
    for (std::int64_t i = 0; i < kLength; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::int64_t token = (place % 5 * kLength + i) % kTokens;
      if (row.labels[at] == kNotCounted) {
        EXPECT_EQ(row.ids[at], token);
        continue;
      }
      ++chosen;
      EXPECT_EQ(row.labels[at], token);
      EXPECT_GT(token, kMask);  // special tokens are never chosen
      EXPECT_TRUE(row.ids[at] >= 0 && row.ids[at] < kTokens);
      masked += row.ids[at] == kMask ? 1 : 0;
      kept += row.ids[at] == token ? 1 : 0;
    }
  }
  EXPECT_NEAR(static_cast<double>(chosen), 0.15 * 100 * kLength * (kTokens - 5) / kTokens, 500);
  EXPECT_NEAR(static_cast<double>(masked) / static_cast<double>(chosen), 0.8, 0.02);
  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(chosen), 0.1, 0.02);
}

TEST(MaskedText, DependsOnSeedAndPlaceAlone) {
  EXPECT_EQ(row_at(1, 6, masking_of(0.15)), row_at(1, 6, masking_of(0.15)));
  EXPECT_NE(row_at(1, 6, masking_of(0.15)), row_at(1, 11, masking_of(0.15)));
  EXPECT_NE(row_at(1, 6, masking_of(0.15)), row_at(1, 6, masking_of(0.15, 4)));
}

TEST(MaskedText, ProbabilitiesOfZeroAndOne) {
  const MaskedRow none = row_at(0, 0, masking_of(0)), all = row_at(0, 0, masking_of(1));
  EXPECT_EQ(none.labels, std::vector<std::int64_t>(kLength, kNotCounted));
  for (std::size_t i = 5; i < 642; ++i) EXPECT_EQ(all.labels[i], static_cast<std::int64_t>(i));
}

TEST(MaskedText, NeedsAMaskToken) {
  const std::string golden = GANTRY_SOURCE_DIR "/tests/golden/";
  const std::string bert = golden + "word_piece/vocab.txt", llama = golden + "tokenizers/kinds/llama2";
  const Masking masking = make_masking(*load_tokenizer(bert), bert, 642);
  EXPECT_EQ(masking.mask_token, 4);
  EXPECT_EQ(std::accumulate(masking.special.begin(), masking.special.end(), 0), 5);
  EXPECT_THROW(make_masking(*load_tokenizer(bert), bert, 600), InputError);
  EXPECT_THROW(make_masking(*load_tokenizer(llama), llama, 1 << 20), InputError);
}

}  // namespace
}  // namespace gantry::testing
