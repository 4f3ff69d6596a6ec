#include "gantry/core/mesh.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "thrown_by.h"

namespace gantry {
namespace {

using testing::thrown_by;
using Groups = std::vector<std::vector<int>>;

TEST(Acceptance, A1MeshGroups) {
  const Mesh mesh = Mesh::hybrid(8, 1, 0, 2);
  EXPECT_EQ(mesh.axis_size("dp"), 4);
  EXPECT_EQ(mesh.groups({"tp"}), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(mesh.groups({"dp"}), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
}

TEST(Acceptance, A2MeshErrorsNameNumbersAndRemedy) {
  EXPECT_EQ(thrown_by<ConfigError>([] { Mesh::hybrid(4, 3, 0, 2); }),
            "parallel: pipeline 3 * tensor 2 = 6 does not divide the 4 ranks of this job; use pipeline 2");
  EXPECT_EQ(thrown_by<ConfigError>([] { Mesh::hybrid(8, 2, 3, 2); }),
            "parallel: pipeline 2 * data 3 * tensor 2 = 12 is not the 8 ranks of this job; use data 2");
  EXPECT_NE(thrown_by<ConfigError>([] { Mesh::hybrid(8, 0, 1, 1); }).find("at least 1"), std::string::npos);
  EXPECT_EQ(thrown_by<ConfigError>([] { Mesh::hybrid(0, 1, 0, 1); }),
            "parallel: a job of 0 ranks; expected at least 1");
  EXPECT_NE(thrown_by<ConfigError>([] { Mesh::hybrid(8, 65536, 0, 65536); }).find("= 4294967296 does not"),
            std::string::npos);
  EXPECT_NE(thrown_by<ConfigError>([] {
              Mesh({{"a", 65536}, {"b", 65536}});
            }).find("axis b of size 65536 on 65536"),
            std::string::npos);
  EXPECT_NE(thrown_by<ConfigError>([] { Mesh::hybrid(2, 16, 0, 1); }).find("does not divide"), std::string::npos);
  EXPECT_NE(thrown_by<ConfigError>([] {
              Mesh::hybrid(1, 1, 1, 1, {"pp", "pp", "tp"});
            }).find("twice"),
            std::string::npos);
  EXPECT_NE(thrown_by<ConfigError>([] { Mesh::hybrid(2, 1, 0, 1).axis_size("ep"); }).find("one of pp, dp, tp"),
            std::string::npos);
}

TEST(Acceptance, A3GroupsAndSizes) {
  const Mesh mesh = Mesh::hybrid(12, 3, 2, 2);
  for (int rank = 0; rank < 12; ++rank) {
    EXPECT_EQ(mesh.rank_at(mesh.coordinates(rank)), rank);
    EXPECT_EQ(mesh.ranks_along(rank, {"pp"}).size(), 3u);
    EXPECT_EQ(mesh.ranks_along(rank, {"dp", "tp"}).size(), 4u);
  }
  EXPECT_EQ(mesh.groups({"pp", "dp", "tp"}).size(), 1u);
  EXPECT_EQ(Mesh::hybrid(4, 2, 0, 2).describe_rank(2), "rank 2 (pp 1, dp 0, tp 0)");
}

TEST(Acceptance, A3GroupsAreAsTheirRanksSay) {
  const Mesh mesh({{"pp", 2}, {"dp", 3}, {"cp", 2}, {"tp", 2}});
  const std::vector<std::vector<std::string>> axis_sets = {{},           {"pp"},       {"dp"},
                                                           {"tp", "pp"}, {"cp", "dp"}, {"tp", "cp", "dp", "pp"}};
  for (const auto& axes : axis_sets) {
    std::vector<int> seen(mesh.size());
    int last_first = -1;
    for (const auto& group : mesh.groups(axes)) {
      EXPECT_GT(group.front(), last_first);
      last_first = group.front();
      for (const int rank : group) {
        ++seen[rank];
        EXPECT_EQ(mesh.ranks_along(rank, axes), group);
        for (const auto& [name, size] : mesh.axes())
          if (std::find(axes.begin(), axes.end(), name) == axes.end())
            EXPECT_EQ(mesh.coordinate(rank, name), mesh.coordinate(last_first, name));
      }
    }
    EXPECT_EQ(seen, std::vector<int>(mesh.size(), 1));
  }
}

TEST(Mesh, RankAtRefusesPlacesThatAreNone) {
  const Mesh mesh = Mesh::hybrid(12, 3, 2, 2);
  EXPECT_EQ(thrown_by<ConfigError>([&] { mesh.rank_at({1, 2, 0}); }), "mesh: coordinate dp 2; expected 0 to 1");
  EXPECT_EQ(thrown_by<ConfigError>([&] { mesh.rank_at({-1, 0, 0}); }), "mesh: coordinate pp -1; expected 0 to 2");
  EXPECT_NE(thrown_by<ConfigError>([&] {
              mesh.rank_at({1, 1});
            }).find("2 coordinates for the 3 axes of pp 3 x dp 2 x tp 2"),
            std::string::npos);
}

// An algorithm with quadratic time would take hours for this number of ranks.
TEST(Mesh, GroupsOfAMillionRanksTakeLinearTime) {
  const Mesh mesh = Mesh::hybrid(1 << 20, 1 << 8, 0, 1 << 3);
  EXPECT_EQ(mesh.groups({"tp"}).size(), 1u << 17);
  EXPECT_EQ(mesh.groups({"pp", "dp"}).size(), 1u << 3);
  EXPECT_EQ(mesh.ranks_along((1 << 20) - 1, {"pp"}).back(), (1 << 20) - 1);
}

TEST(Mesh, OrderChangesWhichRanksAreAdjacent) {
  EXPECT_EQ(Mesh::hybrid(4, 2, 1, 2, {"tp", "dp", "pp"}).groups({"pp"}), (Groups{{0, 1}, {2, 3}}));
}

TEST(Mesh, ContextStandsJustOutsideTpUnlessTheOrderNamesIt) {
  EXPECT_EQ(Mesh::hybrid(16, 2, 0, 2, {"pp", "dp", "tp"}, 2).describe(), "pp 2 x dp 2 x cp 2 x tp 2");
  EXPECT_EQ(Mesh::hybrid(16, 2, 0, 2, {"tp", "pp", "dp"}, 2).describe(), "cp 2 x tp 2 x pp 2 x dp 2");
  EXPECT_EQ(Mesh::hybrid(16, 2, 0, 2, {"cp", "pp", "dp", "tp"}, 2).describe(), "cp 2 x pp 2 x dp 2 x tp 2");
  EXPECT_EQ(Mesh::hybrid(8, 2, 0, 2).describe(), "pp 2 x dp 2 x tp 2");
  EXPECT_EQ(Mesh::hybrid(24, 2, 0, 2, {"pp", "dp", "tp"}, 3).axis_size("dp"), 2);
  EXPECT_NE(thrown_by<ConfigError>([] {
              Mesh::hybrid(8, 2, 0, 2, {"pp", "dp", "tp"}, 3);
            }).find("pipeline 2 * context 3 * tensor 2 = 12 does not divide the 8 ranks"),
            std::string::npos);
  for (const std::vector<std::string>& order :
       std::vector<std::vector<std::string>>{{"pp", "tp"}, {"pp", "dp", "tp", "ep"}, {"pp", "cp", "tp"}, {}})
    EXPECT_NE(thrown_by<ConfigError>([&] { Mesh::hybrid(8, 2, 0, 2, order); }).find("parallel.order"),
              std::string::npos);
}

// For every mesh of up to 64 ranks, checks which coordinates the members of a group share, in both views.
TEST(Mesh, TheExpertViewCountsTheSameRanks) {
  const std::vector<std::vector<std::string>> orders{{"pp", "dp", "tp"}, {"tp", "pp", "dp"}, {"dp", "pp", "cp", "tp"}};
  for (const auto& order : orders)
    for (const int pipeline : {1, 2, 3})
      for (const int data : {1, 2, 3})
        for (const int context : {1, 2})
          for (const int tensor : {1, 2, 3}) {
            const int inside = data * context * tensor;
            for (int expert = 2; expert <= inside; ++expert) {
              if (inside % expert != 0) continue;
              const int ranks = pipeline * inside;
              if (ranks > 64) continue;
              const Mesh mesh = Mesh::hybrid(ranks, pipeline, data, tensor, order, context, expert);
              ASSERT_EQ(mesh.axis_size("edp") * expert, inside);
              std::vector<int> stage_ranks;  // ranks of pp 0, ascending: ep varies fastest
              for (int rank = 0; rank < ranks; ++rank) {
                const auto experts = mesh.ranks_along(rank, {"ep"}), replicas = mesh.ranks_along(rank, {"edp"});
                ASSERT_EQ(static_cast<int>(experts.size()), expert);
                ASSERT_EQ(static_cast<int>(replicas.size()), inside / expert);
                EXPECT_EQ(experts[mesh.coordinate(rank, "ep")], rank);
                EXPECT_EQ(replicas[mesh.coordinate(rank, "edp")], rank);
                for (const int peer : experts) {
                  EXPECT_EQ(mesh.coordinate(peer, "pp"), mesh.coordinate(rank, "pp"));
                  EXPECT_EQ(mesh.coordinate(peer, "edp"), mesh.coordinate(rank, "edp"));
                }
                for (const int peer : replicas) EXPECT_EQ(mesh.coordinate(peer, "ep"), mesh.coordinate(rank, "ep"));
                auto within_stage = mesh.batch_axes();
                within_stage.push_back("tp");
                EXPECT_EQ(mesh.ranks_along(rank, {"ep", "edp"}), mesh.ranks_along(rank, within_stage));
                EXPECT_EQ(static_cast<int>(mesh.ranks_along(rank, {"pp", "ep"}).size()), pipeline * expert);
                if (mesh.coordinate(rank, "pp") == 0) stage_ranks.push_back(rank);
              }
              for (std::size_t i = 0; i < stage_ranks.size(); ++i)
                EXPECT_EQ(mesh.coordinate(stage_ranks[i], "ep"), static_cast<int>(i) % expert);
              EXPECT_EQ(static_cast<int>(mesh.groups({"ep"}).size()), ranks / expert);
            }
          }
  const Mesh mesh = Mesh::hybrid(16, 2, 0, 2, {"pp", "dp", "tp"}, 2, 4);
  EXPECT_EQ(mesh.describe(axis::View::kExpert), "pp 2 x edp 2 x ep 4");
  EXPECT_EQ(mesh.describe_rank(13, axis::View::kExpert), "rank 13 (pp 1, edp 1, ep 1)");
  EXPECT_EQ(thrown_by<ConfigError>([] {
              Mesh::hybrid(8, 2, 0, 2, {"pp", "dp", "tp"}, 1, 3);
            }),
            "parallel.expert: 3 over the 4 ranks that share a stage; expected a divisor of data * context * tensor");
}

TEST(Mesh, RolesStateWhichAxesShareTheBatchAndWhichShard) {
  using Axes = std::vector<std::string>;
  const Mesh mesh = Mesh::hybrid(16, 2, 0, 2, {"pp", "dp", "tp"}, 2, 4);
  EXPECT_EQ(mesh.batch_axes(), (Axes{"dp", "cp"}));
  EXPECT_EQ(mesh.sharding_axes(), Axes{"tp"});
  EXPECT_EQ(mesh.batch_axes(axis::View::kExpert), Axes{"edp"});
  EXPECT_EQ(mesh.sharding_axes(axis::View::kExpert), Axes{"ep"});
  const Mesh dense = Mesh::hybrid(8, 2, 0, 2);  // without expert parallelism there is only one view
  EXPECT_EQ(dense.batch_axes(axis::View::kExpert), Axes{"dp"});
  EXPECT_EQ(Mesh({{"dp", 2}, {"xp", 3}, {"tp", 1}}).sharding_axes(), (Axes{"xp", "tp"}));
}

TEST(Mesh, GroupsAreForTheSetsOfAxesThatJobsNeed) {
  using Sets = std::vector<std::vector<std::string>>;
  EXPECT_EQ(Mesh::hybrid(8, 2, 0, 2).group_sets(),
            (Sets{{"pp"}, {"dp"}, {"pp", "dp"}, {"tp"}, {"pp", "tp"}, {"dp", "tp"}, {"pp", "dp", "tp"}}));
  // Five axes: the batch axes count as one.
  const Mesh mesh = Mesh::hybrid(16384, 16, 0, 8, {"pp", "dp", "tp"}, 4, 64);
  const auto sets = mesh.group_sets();
  EXPECT_EQ(sets.size(), 11u);
  // A rank makes only the groups that it belongs to. They have this number of members in total.
  std::size_t numbers = 0;
  for (const auto& set : sets) {
    const auto ranks = mesh.ranks_along(9999, set);
    EXPECT_TRUE(std::binary_search(ranks.begin(), ranks.end(), 9999));
    numbers += ranks.size();
  }
  EXPECT_LT(numbers, 3u * 16384u);
}

// The groups of all ranks at once, as a simulation of such a job holds them. bench/mesh_bench.cpp measures
// the time.
TEST(Mesh, GroupsOfFiveAxesAndManyRanksAreSmall) {
  const Mesh mesh = Mesh::hybrid(16384, 16, 0, 8, {"pp", "dp", "tp"}, 4, 64);
  std::size_t groups = 0, bytes = 0;
  for (const auto& set : mesh.group_sets()) {
    std::size_t numbers = 0, along = 1;
    for (const auto& axis : set) along *= static_cast<std::size_t>(mesh.axis_size(axis));
    for (const auto& ranks : mesh.groups(set)) {
      EXPECT_EQ(ranks.size(), along);
      numbers += ranks.size();
      bytes += sizeof(ranks) + ranks.capacity() * sizeof(int);
      ++groups;
    }
    EXPECT_EQ(numbers, 16384u);  // every rank is in one group of each set
  }
  // The number of groups of a set is the number of ranks divided by the sizes of its axes. dp is 32. edp is
  // 16: 1024 ranks share a stage, and ep is 64.
  EXPECT_EQ(groups, 1024u + 128 + 8 + 2048 + 128 + 16 + 1 + 512 + 4096 + 1024 + 256);
  EXPECT_LT(bytes, 100u << 20);
}

}  // namespace
}  // namespace gantry
