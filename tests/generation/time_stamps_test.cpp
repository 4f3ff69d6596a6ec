// The times that may follow Whisper's tokens, for scores computed by hand, and the text between times.
#include "gantry/generation/time_stamps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int64_t>;

// Twelve tokens: words 0 to 4, the stop token 5, another mark 6, "no times" 7, and times 8 to 11.
constexpr TimeStamps kStamps{.first = 8, .text_end = 5, .most_initial = 1};

Tokens allowed(const torch::Tensor& row) {
  Tokens tokens;
  for (std::int64_t token = 0; token < row.size(0); ++token)
    if (row[token].item<double>() > -1e30) tokens.push_back(token);
  return tokens;
}

// The tokens that may follow `text` if words and marks
// have the score `word`, and times have the score `time`.
Tokens following(const TokenIds& text, double word = 0, double time = -9) {
  torch::Tensor scores = torch::full({1, 12}, word, torch::kFloat32);
  scores.narrow(1, 8, 4).fill_(time);
  generation::keep_time_stamps(scores, kStamps, {text});
  return allowed(scores[0]);
}

TEST(TimeStamps, ATextBeginsWithOneThatIsNotLate) { EXPECT_THAT(following({}), ElementsAre(8, 9)); }

TEST(TimeStamps, ComeInPairsButForTheLast) {
  EXPECT_THAT(following({8}), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(following({8, 1}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 9, 10, 11));
  EXPECT_THAT(following({8, 1, 9}), ElementsAre(5, 6, 9, 10, 11));  // the second time of a pair, or the end
  EXPECT_THAT(following({8, 1, 9, 9}), ElementsAre(0, 1, 2, 3, 4, 5, 6));
}

TEST(TimeStamps, DoNotFall) {
  EXPECT_THAT(following({8, 1, 10, 10, 2}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 11));
  EXPECT_THAT(following({8, 1, 11}), ElementsAre(5, 6, 11));
  EXPECT_THAT(following({8, 1, 11, 11, 2}), ElementsAre(0, 1, 2, 3, 4, 5, 6));
}

// Three times of score t weigh as much as one word of t + ln 3 = t + 1.0986.
TEST(TimeStamps, TogetherTheyMayBeLikelierThanAnyWord) {
  EXPECT_THAT(following({8, 1}, 2, 0.90), ElementsAre(0, 1, 2, 3, 4, 5, 6, 9, 10, 11));
  EXPECT_THAT(following({8, 1}, 2, 0.91), ElementsAre(9, 10, 11));
  EXPECT_THAT(following({8, 1, 10, 10, 2}, 2, 1.99), ElementsAre(0, 1, 2, 3, 4, 5, 6, 11));  // a single time
}

TEST(TimeStamps, RowsKeepToTheirOwnTexts) {
  torch::Tensor scores = torch::zeros({2, 12});
  scores.narrow(1, 8, 4).fill_(-9);
  generation::keep_time_stamps(scores, kStamps, {{8}, {8, 1, 9}});
  EXPECT_THAT(allowed(scores[0]), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(allowed(scores[1]), ElementsAre(5, 6, 9, 10, 11));
  torch::Tensor short_rows = torch::zeros({1, 8});
  try {
    generation::keep_time_stamps(short_rows, kStamps, {{}});
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("time_stamps: the first one is token 8 of 8"));
  }
}

TEST(TimeStamps, AreTheEndsOfTexts) {
  const auto texts = generation::timed_texts({8, 1, 2, 9, 9, 3, 11, 5}, kStamps);
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0].tokens, (TokenIds{1, 2}));
  EXPECT_NEAR(texts[0].begin, 0, 1e-12);
  EXPECT_NEAR(texts[0].end.value(), 0.02, 1e-12);
  EXPECT_EQ(texts[1].tokens, TokenIds{3});
  EXPECT_NEAR(texts[1].begin, 0.02, 1e-12);
  EXPECT_NEAR(texts[1].end.value(), 0.06, 1e-12);
  const auto open = generation::timed_texts({8, 1, 10, 10, 2, 3}, kStamps);
  ASSERT_EQ(open.size(), 2u);
  EXPECT_FALSE(open[1].end.has_value());
  EXPECT_EQ(open[1].tokens, (TokenIds{2, 3}));
  EXPECT_TRUE(generation::timed_texts({8, 5}, kStamps).empty());
}

}  // namespace
}  // namespace gantry::testing
