// The scores of tokens after filters and prohibitions. The expected tokens are those of transformers' processors.
#include "gantry/generation/token_scores.h"

#include <cmath>
#include <gtest/gtest.h>

#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

using Rows = std::vector<TokenIds>;
constexpr double kNever = -HUGE_VAL;

// The tokens of each row that can be chosen.
Rows left_in(const torch::Tensor& scores) {
  Rows rows;
  for (std::int64_t row = 0; row < scores.size(0); ++row) {
    rows.emplace_back();
    for (std::int64_t token = 0; token < scores.size(1); ++token)
      if (scores[row][token].item<double>() > -1e30) rows.back().push_back(token);
  }
  return rows;
}

torch::Tensor two_rows() {
  return torch::tensor({{2.0, 1.5, 0.3, -1.0, -3.0, 0.25}, {0.0, 0.1, 0.2, 0.3, 0.4, 5.0}}, torch::kFloat64);
}

TEST(TokenScores, MinPKeepsTokensNearTheMostLikelyOne) {
  const auto kept = [](double min_p) {
    torch::Tensor scores = two_rows();
    generation::keep_min_p(scores, min_p);
    return left_in(scores);
  };
  EXPECT_EQ(kept(0), (Rows{{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}}));
  EXPECT_EQ(kept(0.05), (Rows{{0, 1, 2, 5}, {5}}));
  EXPECT_EQ(kept(0.3), (Rows{{0, 1}, {5}}));
  EXPECT_EQ(kept(1), (Rows{{0}, {5}}));
}

TEST(TokenScores, TypicalPKeepsTokensNearTheEntropy) {
  const auto kept = [](double typical_p) {
    torch::Tensor scores = two_rows();
    generation::keep_typical(scores, typical_p);
    return left_in(scores);
  };
  EXPECT_EQ(kept(0.05), (Rows{{1}, {5}}));
  EXPECT_EQ(kept(0.6), (Rows{{0, 1}, {5}}));
  EXPECT_EQ(kept(0.95), (Rows{{0, 1, 2, 5}, {5}}));
  EXPECT_EQ(kept(1), (Rows{{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}}));
}

// Six tokens from `first` on, one row for each text.
torch::Tensor even_scores(std::size_t rows) {
  return torch::zeros({static_cast<std::int64_t>(rows), 6}, torch::kFloat32);
}

TEST(TokenScores, NoRunOfTokensIsRepeated) {
  const TokenIds one = {1, 2, 3, 1, 2}, other = {4, 4}, brief = {5};
  const auto left = [&](std::int64_t size, std::int64_t first) {
    torch::Tensor scores = even_scores(3);
    generation::forbid_repeated_runs(scores, {&one, &other, &brief}, size, first);
    return left_in(scores);
  };
  EXPECT_EQ(left(1, 0), (Rows{{0, 4, 5}, {0, 1, 2, 3, 5}, {0, 1, 2, 3, 4}}));
  EXPECT_EQ(left(2, 0), (Rows{{0, 1, 2, 4, 5}, {0, 1, 2, 3, 5}, {0, 1, 2, 3, 4, 5}}));
  EXPECT_EQ(left(3, 0), (Rows{{0, 1, 2, 4, 5}, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}}));
  EXPECT_EQ(left(2, 3), (Rows{{1, 2, 3, 4, 5}, {0, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}})) << "columns of tokens 3 to 8";
  EXPECT_EQ(left(6, 0), (Rows{{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}}));
}

TEST(TokenScores, WordsAreNotCompleted) {
  const TokenIds one = {1, 2, 3}, other = {2};
  torch::Tensor scores = even_scores(2);
  generation::add_biases(
      scores, {&one, &other},
      {{{5}, kNever}, {{3, 0}, kNever}, {{2, 3, 1}, kNever}, {{2, 4}, kNever}, {{9, 9, 9, 9, 3, 2}, kNever}}, 0);
  EXPECT_EQ(left_in(scores), (Rows{{2, 3, 4}, {0, 1, 2, 3}}));
}

// A shard of the columns, from token 2 on.
TEST(TokenScores, BiasesAreAddedWhereTheirTokensPrecede) {
  const TokenIds one = {1, 2, 3}, other = {2};
  torch::Tensor scores = torch::zeros({2, 4});
  generation::add_biases(scores, {&one, &other},
                         {{{2}, 0.5}, {{3, 2}, 1}, {{2, 3, 4}, -2}, {{2, 5}, 8}, {{0}, 9}, {{2, 9}, 9}}, 2);
  EXPECT_TRUE(torch::equal(scores, torch::tensor({{1.5, 0.0, -2.0, 0.0}, {0.5, 0.0, 0.0, 8.0}}, torch::kFloat32)))
      << scores;
}

TEST(TokenScores, ForcedTokensHaveTheScoreZero) {
  torch::Tensor scores = even_scores(2) + 7;
  generation::force(scores, {4, 8}, 3);
  EXPECT_EQ(left_in(scores), (Rows{{1, 5}, {1, 5}}));
  EXPECT_EQ(scores[0][1].item<float>(), 0);
}

}  // namespace
}  // namespace gantry::testing
