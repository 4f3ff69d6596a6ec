#include "gantry/trainer/step_commit.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "gantry/core/error.h"

namespace gantry {

StepCommit commit_step(const std::vector<RankProgress>& ranks) {
  std::set<int> incomplete;  // replicas with a rank that has no state
  for (const RankProgress& rank : ranks)
    if (rank.done == RankProgress::kNone) incomplete.insert(rank.replica);
  StepCommit commit;
  std::int64_t newest = RankProgress::kNone, oldest = RankProgress::kNone;
  bool all_prepared = true;
  for (const RankProgress& rank : ranks) {
    commit.has_state.push_back(!incomplete.contains(rank.replica));
    commit.finishes.push_back(false);
    if (!commit.has_state.back()) continue;
    newest = std::max(newest, rank.done);
    oldest = oldest == RankProgress::kNone ? rank.done : std::min(oldest, rank.done);
    all_prepared = all_prepared && rank.prepared;
  }
  if (newest == RankProgress::kNone) return commit;
  commit.step = newest == oldest && all_prepared ? newest + 1 : newest;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!commit.has_state[i] || ranks[i].done == commit.step) continue;
    if (ranks[i].done + 1 != commit.step || !ranks[i].prepared)
      throw InternalError(
          {"elastic",
           fmt::format("rank {} has completed step {}, but another rank step {}", i, ranks[i].done, commit.step),
           "ranks that have prepared each step that another rank has completed", ""});
    commit.finishes[i] = true;
  }
  return commit;
}

}  // namespace gantry
