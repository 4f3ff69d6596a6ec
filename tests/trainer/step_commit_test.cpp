// The agreement of the remaining ranks on the last completed step, over all places at which a job can lose ranks.
#include "gantry/trainer/step_commit.h"

#include <gtest/gtest.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// A rank goes through: computes step 1, has prepared it, has completed it, computes step 2, ... No rank completes a
// step before all have prepared it, and no rank begins a step before all have completed the one before.
RankProgress progress_at(int place, int replica) {
  return {.replica = replica, .done = (place + 1) / 3, .prepared = place % 3 == 1};
}

bool can_be(const std::vector<int>& places) {
  for (const int place : places)
    for (const int other : places) {
      const int needs = place % 3 == 1 ? place - 2 : place - 1;
      if (other < needs) return false;
    }
  return true;
}

// Calls `check` with the places of all ranks, and with the set of the ranks that are left, as bits.
template <class Check>
int for_all_losses(int ranks, int most_place, const Check& check) {
  int cases = 0;
  std::vector<int> places(static_cast<std::size_t>(ranks), 0);
  const auto advance = [&] {
    for (int& place : places) {
      if (++place <= most_place) return true;
      place = 0;
    }
    return false;
  };
  do {
    if (!can_be(places)) continue;
    for (unsigned left = 1; left < 1U << ranks; ++left, ++cases) check(places, left);
  } while (advance());
  return cases;
}

TEST(StepCommit, EveryLossLeavesOneStepThatAllCanReach) {
  for (const int ranks : {1, 2, 3, 4, 5}) {
    const int cases = for_all_losses(ranks, 7, [&](const std::vector<int>& places, unsigned left) {
      std::vector<RankProgress> reports;
      std::int64_t most = -1, least = 100;
      for (int i = 0; i < ranks; ++i)
        if (left >> i & 1) {
          reports.push_back(progress_at(places[static_cast<std::size_t>(i)], i));
          most = std::max(most, reports.back().done);
          least = std::min(least, reports.back().done + (reports.back().prepared ? 1 : 0));
        }
      const StepCommit commit = commit_step(reports);
      EXPECT_GE(commit.step, most) << "no completed step is lost";
      EXPECT_LE(commit.step, least) << "no rank is asked for a step that it has not prepared";
      for (std::size_t i = 0; i < reports.size(); ++i) {
        EXPECT_TRUE(commit.has_state[i]);
        EXPECT_EQ(reports[i].done + (commit.finishes[i] ? 1 : 0), commit.step);
        EXPECT_TRUE(!commit.finishes[i] || reports[i].prepared);
      }
    });
    EXPECT_GT(cases, ranks);
  }
}

// A second loss while the ranks agree on the first one: some have already completed the step.
TEST(StepCommit, ALossDuringTheAgreementChangesNoStep) {
  constexpr int kRanks = 4;
  for_all_losses(kRanks, 5, [](const std::vector<int>& places, unsigned left) {
    std::vector<RankProgress> reports;
    for (int i = 0; i < kRanks; ++i)
      if (left >> i & 1) reports.push_back(progress_at(places[static_cast<std::size_t>(i)], i));
    const StepCommit first = commit_step(reports);
    for (unsigned acted = 0; acted < 1U << reports.size(); ++acted)
      for (unsigned still = 1; still < 1U << reports.size(); ++still) {
        std::vector<RankProgress> again;
        bool any_acted = false;
        for (std::size_t i = 0; i < reports.size(); ++i) {
          if (!(still >> i & 1)) continue;
          any_acted = any_acted || (acted >> i & 1);
          again.push_back(acted >> i & 1 ? RankProgress{reports[i].replica, first.step, false} : reports[i]);
        }
        const std::int64_t step = commit_step(again).step;
        if (any_acted) EXPECT_EQ(step, first.step);
        EXPECT_GE(step, first.step);
      }
  });
}

TEST(StepCommit, ReplicasWithoutTheFullStateGetItFromOthers) {
  const auto commit = commit_step({{0, 4, true}, {0, 4, true}, {1, 4, true}, {1, RankProgress::kNone, false}});
  EXPECT_EQ(commit.step, 5);
  EXPECT_EQ(commit.has_state, (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(commit.finishes, (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(commit_step({{0, 4, false}, {0, RankProgress::kNone, false}}).step, RankProgress::kNone);
  EXPECT_EQ(commit_step({}).step, RankProgress::kNone);
}

TEST(StepCommit, StatesThatNoJobCanHaveAreErrors) {
  EXPECT_THROW(commit_step({{0, 4, false}, {1, 5, false}}), InternalError);
  EXPECT_THROW(commit_step({{0, 3, true}, {1, 5, false}}), InternalError);
}

}  // namespace
}  // namespace gantry
