// The windows of SQuAD as samples.
#include "gantry/data/squad_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/data/squad.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using Numbers = std::vector<std::int64_t>;

const std::string kGoldenFolder = std::string(GANTRY_SOURCE_DIR) + "/tests/golden";
const std::string kVocabulary = kGoldenFolder + "/word_piece/vocab.txt", kSquad = kGoldenFolder + "/squad/squad.json";

std::string fault_of(const std::string& file, std::int64_t length, std::int64_t vocabulary) {
  return testing::thrown_by<InputError>([&] { open_squad_dataset(file, kVocabulary, length, vocabulary); });
}

TEST(SquadDataset, SamplesArePaddedWindowsWithTheirAnswers) {
  constexpr std::int64_t kLength = 48;
  const auto tokenizer = WordPiece::load(kVocabulary);
  const auto data = read_squad(kSquad);
  const auto features = make_squad_features(data, tokenizer, {.max_length = kLength, .stride = kLength / 3});
  const auto dataset = open_squad_dataset(kSquad, kVocabulary, kLength, tokenizer.size());
  ASSERT_EQ(dataset->size(), static_cast<std::int64_t>(features.size()));
  ASSERT_GT(features.size(), data.examples.size());  // some contexts need several windows
  int answered = 0, padded = 0;
  for (std::int64_t i = 0; i < dataset->size(); ++i) {
    Numbers row(3 * kLength + 2, -1);
    dataset->read(i, row.data());
    const auto& feature = features[static_cast<std::size_t>(i)];
    Numbers expected = feature.encoding.ids;
    expected.insert(expected.end(), feature.encoding.token_types.begin(), feature.encoding.token_types.end());
    expected.insert(expected.end(), feature.encoding.attention_mask.begin(), feature.encoding.attention_mask.end());
    expected.push_back(feature.start_position);
    expected.push_back(feature.end_position);
    EXPECT_EQ(row, expected) << "window " << i;
    answered += feature.start_position > 0;
    padded += feature.encoding.attention_mask.back() == 0;
  }
  EXPECT_GT(answered, 0);
  EXPECT_GT(padded, 0);
}

TEST(SquadDataset, EntriesLieBehindEachOther) {
  std::int64_t next = 0;
  for (const auto& entry : answer_span_entries(10)) {
    EXPECT_EQ(entry.first, next) << entry.name;
    next += std::max<std::int64_t>(1, entry.length);
  }
  EXPECT_EQ(next, 32);
}

TEST(SquadDataset, WhatItCanNotTrainOnIsRefused) {
  const testing::ScratchFolder scratch;
  EXPECT_THAT(fault_of(scratch / "none.json", 48, 1000000), HasSubstr("none.json"));
  EXPECT_THAT(fault_of(kSquad, 48, 100), HasSubstr("but the model's vocabulary is 100"));
  EXPECT_THAT(fault_of(kSquad, 8, 1000000), HasSubstr("question q0"));
  const std::string unanswered = scratch.write(
      "u.json",
      R"({"data": [{"paragraphs": [{"context": "a b", "qas": [{"id": "x7", "question": "?", "answers": []}]}]}]})");
  EXPECT_THAT(fault_of(unanswered, 48, 1000000), HasSubstr("question x7 has no answer"));
}

}  // namespace
}  // namespace gantry
