#include "gantry/core/sharding/sequence_shard.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "gantry/core/config/context_choice.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr SequenceLayout kLayouts[] = {SequenceLayout::kContiguous, SequenceLayout::kZigzag};

// Calls `use` with every SequenceShard of up to 40 tokens over up to 8 ranks.
template <class Use>
void for_each_shard(Use use) {
  for (const SequenceLayout layout : kLayouts)
    for (int ranks = 1; ranks <= 8; ++ranks)
      for (int together = 1; together <= ranks; ++together)
        for (std::int64_t tokens = 1; ranks % together == 0 && tokens <= 40; ++tokens)
          use(SequenceShard{tokens, ranks, layout, together});
}

TEST(SequenceShard, EveryTokenStandsOnOneRank) {
  for_each_shard([](const SequenceShard& shard) {
    auto all = shard.permutation();
    ASSERT_EQ(static_cast<std::int64_t>(all.size()), shard.tokens);
    std::sort(all.begin(), all.end());
    for (std::int64_t place = 0; place < shard.tokens; ++place) ASSERT_EQ(all[place], place);
  });
}

TEST(SequenceShard, TheInversePutsTokensBackInOrder) {
  for_each_shard([](const SequenceShard& shard) {
    const auto places = shard.permutation(), inverse = shard.inverse();
    for (std::int64_t place = 0; place < shard.tokens; ++place) ASSERT_EQ(places[inverse[place]], place);
  });
}

TEST(SequenceShard, RunsAreThePlacesInOrder) {
  for_each_shard([](const SequenceShard& shard) {
    const auto sizes = shard.sizes();
    for (int rank = 0; rank < shard.ranks; ++rank) {
      const auto places = shard.places(rank);
      ASSERT_EQ(static_cast<std::int64_t>(places.size()), sizes[rank]);
      ASSERT_TRUE(std::is_sorted(places.begin(), places.end()));
      for (const Range& run : shard.runs(rank)) ASSERT_GT(run.size(), 0);
    }
  });
}

TEST(SequenceShard, NoRankIsEmptyWhereThereAreTokensForAll) {
  for_each_shard([](const SequenceShard& shard) {
    if (shard.tokens < shard.ranks) return;
    for (const std::int64_t size : shard.sizes())
      ASSERT_GT(size, 0) << name_of(shard.layout) << shard.tokens << shard.ranks;
  });
}

TEST(SequenceShard, ZigzagGivesEveryRankEqualCausalWork) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (std::int64_t chunk = 1; chunk <= 5; ++chunk) {
      const SequenceShard shard{2 * ranks * chunk, ranks, SequenceLayout::kZigzag};
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(shard.causal_pairs(rank) * ranks, shard.tokens * (shard.tokens + 1) / 2) << ranks << " " << chunk;
    }
}

// Returns the number of scores that a rank computes in all steps of a ring, from its tiles.
std::int64_t computed_pairs(const SequenceShard& shard, int rank, bool causal) {
  std::int64_t pairs = 0;
  for (int from = 0; from < shard.ranks; ++from)
    for (const auto& [queries, keys, kind] : attention_tiles(shard.runs(rank), shard.runs(from), causal, 0)) {
      EXPECT_NE(kind, AttentionTile::Kind::kMasked);
      const bool below = kind == AttentionTile::Kind::kCausal;
      pairs += below ? queries.size() * (queries.size() + 1) / 2 : queries.size() * keys.size();
    }
  return pairs;
}

// In a ring, all ranks have exactly the same work: with zigzag layout and causal attention, and with
// contiguous layout and full attention.
TEST(SequenceShard, RingsGiveEveryRankEqualWork) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const std::int64_t chunk : {1, 2, 7}) {
      const std::int64_t tokens = 2 * ranks * chunk;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(computed_pairs({tokens, ranks, SequenceLayout::kZigzag}, rank, true) * ranks,
                  tokens * (tokens + 1) / 2);
        EXPECT_EQ(computed_pairs({tokens, ranks, SequenceLayout::kContiguous}, rank, false) * ranks, tokens * tokens);
      }
    }
}

TEST(SequenceShard, ContiguousWorkIsThatOfTheLastRank) {
  const SequenceShard shard{64, 4, SequenceLayout::kContiguous};
  EXPECT_EQ(shard.causal_pairs(3), 16 * 48 + 16 * 17 / 2);
  EXPECT_EQ(shard.causal_pairs(0), 16 * 17 / 2);
}

TEST(SequenceShard, ChunksOfAZigzag) {
  const SequenceShard shard{12, 3, SequenceLayout::kZigzag};
  EXPECT_EQ(shard.places(0), (std::vector<std::int64_t>{0, 1, 10, 11}));
  EXPECT_EQ(shard.runs(2), (std::vector<Range>{{4, 8}}));  // the two chunks in the middle form one run
}

TEST(SequenceShard, RanksTogetherHaveThePlaceOfOne) {
  for_each_shard([](const SequenceShard& shard) {
    const SequenceShard places{shard.tokens, shard.ranks / shard.together, shard.layout};
    for (int place = 0; place < places.ranks; ++place) {
      std::vector<std::int64_t> joined;
      for (int i = 0; i < shard.together; ++i)
        for (const std::int64_t token : shard.places(place * shard.together + i)) joined.push_back(token);
      ASSERT_EQ(joined, places.places(place)) << name_of(shard.layout) << shard.tokens << shard.ranks << shard.together;
    }
  });
}

bool sees(std::int64_t query, std::int64_t key, bool causal, std::int64_t window) {
  return (!causal || key <= query) && (window == 0 || std::abs(key - query) < window);
}

// Checks that the tiles contain every visible pair once. In a kMasked tile a pair may be visible or not; the
// other kinds are exact.
void expect_tiles_cover(const SequenceShard& shard, int queries, int keys, bool causal, std::int64_t window) {
  const auto rows = shard.places(queries), columns = shard.places(keys);
  std::set<std::pair<std::int64_t, std::int64_t>> covered;
  for (const auto& tile : attention_tiles(shard.runs(queries), shard.runs(keys), causal, window))
    for (std::int64_t i = tile.queries.begin; i < tile.queries.end; ++i)
      for (std::int64_t j = tile.keys.begin; j < tile.keys.end; ++j) {
        ASSERT_TRUE(covered.insert({i, j}).second) << "twice";
        const bool seen = sees(rows[i], columns[j], causal, window);
        if (tile.kind == AttentionTile::Kind::kFull) ASSERT_TRUE(seen);
        if (tile.kind == AttentionTile::Kind::kCausal) ASSERT_EQ(seen, j - tile.keys.begin <= i - tile.queries.begin);
      }
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < columns.size(); ++j)
      if (sees(rows[i], columns[j], causal, window)) ASSERT_TRUE(covered.contains({i, j}));
}

TEST(AttentionTiles, CoverEveryPairThatIsSeenOnce) {
  for (const SequenceLayout layout : kLayouts)
    for (int ranks = 1; ranks <= 4; ++ranks)
      for (const std::int64_t tokens : {1, 2, 5, 8, 13, 16})
        for (const std::int64_t window : {0, 1, 3, 20})
          for (int queries = 0; queries < ranks; ++queries)
            for (int keys = 0; keys < ranks; ++keys) {
              expect_tiles_cover({tokens, ranks, layout}, queries, keys, /*causal=*/true, window);
              expect_tiles_cover({tokens, ranks, layout}, queries, keys, /*causal=*/false, window);
              if (::testing::Test::HasFatalFailure()) return;
            }
}

TEST(AttentionTiles, AZigzagsStepsAreOneTileEach) {
  const SequenceShard shard{32, 4, SequenceLayout::kZigzag};
  using Kind = AttentionTile::Kind;
  // With keys of an earlier rank, all queries see the first half of the keys. With keys of a later rank, the
  // second half of the queries sees all keys.
  EXPECT_EQ(attention_tiles(shard.runs(1), shard.runs(0), true, 0),
            (std::vector<AttentionTile>{{{0, 8}, {0, 4}, Kind::kFull}}));
  EXPECT_EQ(attention_tiles(shard.runs(1), shard.runs(2), true, 0),
            (std::vector<AttentionTile>{{{4, 8}, {0, 8}, Kind::kFull}}));
}

ContextRequest parallel(int context, int tensor, const char* method) {
  return {.ranks = context, .tensor = tensor, .method = context_method_of(method)};
}

TEST(ContextChoice, AutoExchangesHeadsWhereTheRanksDivideThem) {
  EXPECT_EQ(choose_context(parallel(2, 1, "auto"), {8, 4}).method, ContextMethod::kUlysses);
  EXPECT_EQ(choose_context(parallel(4, 2, "auto"), {8, 4}).method, ContextMethod::kRing);
  EXPECT_EQ(choose_context(parallel(2, 1, "auto"), {8, 1}).method, ContextMethod::kRing);
  EXPECT_EQ(choose_context(parallel(2, 1, "auto"), {0, 0}).method, ContextMethod::kAllGather) << "no attention";
  EXPECT_EQ(choose_context(parallel(2, 1, "ulysses"), {0, 0}).method, ContextMethod::kAllGather);
  EXPECT_EQ(choose_context(parallel(2, 1, "ring"), {0, 0}).method, ContextMethod::kRing);
}

TEST(ContextChoice, AutoGathersKeysOfShortSequences) {
  const auto choice = [](std::int64_t tokens) { return choose_context(parallel(4, 2, "auto"), {8, 4}, {tokens}); };
  EXPECT_EQ(choice(1023).method, ContextMethod::kAllGather);
  EXPECT_NE(choice(1023).reason.find("1023 tokens over 4 ranks are fewer than 256 each"), std::string::npos);
  EXPECT_EQ(choice(1024).method, ContextMethod::kRing);
  EXPECT_EQ(choose_context(parallel(2, 1, "auto"), {8, 4}, {64}).method, ContextMethod::kUlysses);
}

TEST(ContextChoice, AutoExchangesHeadsWithinHosts) {
  const auto choice = [](int ranks_of_host, const AttentionHeads& heads) {
    return choose_context(parallel(8, 1, "auto"), heads, {.ranks_of_host = ranks_of_host});
  };
  EXPECT_EQ(choice(8, {8, 8}).method, ContextMethod::kUlysses);
  EXPECT_EQ(choice(4, {8, 8}).method, ContextMethod::kUlyssesRing);
  EXPECT_EQ(choice(4, {8, 8}).exchanging, 4);
  EXPECT_EQ(choice(4, {8, 2}).exchanging, 2);
  EXPECT_EQ(choice(4, {8, 2}).reason, "4 of 8 ranks are on a host, of which 2 exchange heads");
  EXPECT_EQ(choice(4, {9, 3}).method, ContextMethod::kRing);
  EXPECT_EQ(choice(1, {8, 8}).method, ContextMethod::kRing);
}

TEST(ContextChoice, UlyssesOverMoreRanksThanHeadsIsRefused) {
  EXPECT_EQ(choose_context(parallel(3, 1, "ulysses"), {3, 1}).method, ContextMethod::kUlysses);
  try {
    choose_context(parallel(4, 2, "ulysses"), {6, 2});
    FAIL() << "it was not refused";
  } catch (const ConfigError& error) {
    const std::string line = error.what();
    EXPECT_NE(line.find("6 heads over tensor 2 leave 3 heads per rank"), std::string::npos) << line;
    EXPECT_NE(line.find("use ring or all_gather"), std::string::npos) << line;
  }
}

ContextChoice ulysses_ring(int context, int inner, const AttentionHeads& heads) {
  ContextRequest request = parallel(context, 1, "ulysses_ring");
  request.ulysses = inner;
  return choose_context(request, heads);
}

TEST(ContextChoice, HeadsAreExchangedWithinARing) {
  EXPECT_EQ(ulysses_ring(8, 2, {8, 4}).exchanging, 2);
  EXPECT_EQ(ulysses_ring(8, 0, {8, 4}).exchanging, 4);   // the largest divisor below 8 that divides the heads
  EXPECT_EQ(ulysses_ring(12, 0, {8, 1}).exchanging, 6);  // none does: the largest divisor up to the heads
  EXPECT_EQ(ulysses_ring(4, 1, {8, 4}).method, ContextMethod::kRing);
  EXPECT_EQ(ulysses_ring(4, 4, {8, 4}).method, ContextMethod::kUlysses);
  EXPECT_EQ(ulysses_ring(5, 0, {8, 4}).method, ContextMethod::kRing);  // 5 is a prime number
  const SequenceShard shard = ulysses_ring(4, 2, {8, 4}).split(16, 4);
  EXPECT_EQ(shard.places(1), (std::vector<std::int64_t>{12, 13, 14, 15}));
  EXPECT_EQ(shard.places(2), (std::vector<std::int64_t>{4, 5, 6, 7}));
}

TEST(ContextChoice, OnlyCausalTokensAreShardedInAZigzag) {
  const ContextChoice ring{ContextMethod::kRing, ""}, ulysses{ContextMethod::kUlysses, ""};
  EXPECT_EQ(ring.split(16, 2).layout, SequenceLayout::kZigzag);
  EXPECT_EQ(ring.split(16, 2, /*causal=*/false).layout, SequenceLayout::kContiguous);
  EXPECT_EQ(ulysses_ring(4, 2, {8, 4}).split(16, 4, /*causal=*/false).layout, SequenceLayout::kContiguous);
  EXPECT_EQ(ulysses.split(16, 2).layout, SequenceLayout::kContiguous);
}

TEST(ContextChoice, WhatCannotExchangeHeadsIsRefused) {
  const auto refusal = [](int context, int inner, const AttentionHeads& heads) {
    try {
      ulysses_ring(context, inner, heads);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_NE(refusal(8, 3, {6, 6}).find("3 ranks exchange heads, of 8 that share sequences"), std::string::npos);
  EXPECT_NE(refusal(8, 4, {3, 1}).find("3 heads over tensor 1 leave 3 heads per rank"), std::string::npos);
}

TEST(ContextChoice, ElementsALayer) {
  const ContextChoice ring{ContextMethod::kRing, ""}, ulysses{ContextMethod::kUlysses, ""};
  EXPECT_EQ(context_elements(ring, 32, 4, {8, 2}, 16), 3 * 2 * 8 * 2 * 16);
  EXPECT_EQ(context_elements(ulysses, 32, 4, {8, 4}, 16), (2 * 8 * 8 * 16 + 2 * 8 * 4 * 16) * 3 / 4);
  // Two of the 4 ranks exchange half of their heads. One step of the ring sends the keys and values of 16
  // tokens and 2 heads.
  EXPECT_EQ(context_elements(ulysses_ring(4, 2, {8, 4}), 32, 4, {8, 4}, 16),
            (2 * 8 * 8 * 16 + 2 * 8 * 4 * 16) / 2 + 2 * 16 * 2 * 16);
}

}  // namespace
}  // namespace gantry
