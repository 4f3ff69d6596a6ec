// Rounds in which few bytes are passed on among many ranks.
#include "gantry/comm/processes/doubling_rounds.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

namespace gantry::testing {
namespace {

std::vector<DoublingRound> doubling_rounds(int rank, int size) {
  std::vector<DoublingRound> rounds;
  visit_doubling_rounds(rank, size, [&](const DoublingRound& round) { rounds.push_back(round); });
  return rounds;
}

// The rank that each block of a rank comes from, after all rounds of all ranks.
std::vector<std::vector<int>> origins(int size) {
  std::vector<std::vector<int>> held(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) held[static_cast<std::size_t>(rank)] = {rank};
  for (std::size_t round = 0; round < doubling_rounds(0, size).size(); ++round) {
    const auto before = held;
    for (int rank = 0; rank < size; ++rank) {
      const DoublingRound mine = doubling_rounds(rank, size)[round];
      const DoublingRound theirs = doubling_rounds(mine.from, size)[round];
      EXPECT_EQ(theirs.to, rank);
      EXPECT_EQ(theirs.blocks, mine.blocks);
      auto& blocks = held[static_cast<std::size_t>(rank)];
      EXPECT_EQ(blocks.size(), static_cast<std::size_t>(mine.held));
      const auto& sent = before[static_cast<std::size_t>(mine.from)];
      blocks.insert(blocks.end(), sent.begin(), sent.begin() + mine.blocks);
    }
  }
  return held;
}

TEST(DoublingRounds, BringEveryRankTheBlocksOfAllOthers) {
  for (const int size : {1, 2, 3, 4, 5, 7, 8, 17, 31, 64, 100}) {
    const auto held = origins(size);
    for (int rank = 0; rank < size; ++rank) {
      const auto& blocks = held[static_cast<std::size_t>(rank)];
      ASSERT_EQ(blocks.size(), static_cast<std::size_t>(size));
      for (int i = 0; i < size; ++i) EXPECT_EQ(blocks[static_cast<std::size_t>(i)], (rank - i + size) % size);
    }
  }
}

TEST(DoublingRounds, NeedAsManyMessagesAsTheLogarithmOfTheRanks) {
  for (const int size : {17, 64, 1024, 16'384}) {
    const auto rounds = doubling_rounds(size / 3, size);
    EXPECT_EQ(rounds.size(), static_cast<std::size_t>(std::ceil(std::log2(size)))) << size;
    EXPECT_EQ(
        std::accumulate(rounds.begin(), rounds.end(), 0, [](int sum, const auto& one) { return sum + one.blocks; }),
        size - 1);
  }
}

}  // namespace
}  // namespace gantry::testing
