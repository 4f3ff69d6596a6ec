// The rule by which the remaining ranks of an elastic job agree on the last completed step.
//
// A step of the optimizer is local. Before it, all ranks meet: a rank that has met all others has "prepared" the step,
// because its gradients are the sums over all replicas. So if one rank has completed a step, all ranks have prepared
// it, and each can complete it by itself. If no rank has completed a step, it is repeated from its samples.
#pragma once

#include <cstdint>
#include <vector>

namespace gantry {

// The state of a rank when it learned that the ranks of the job change.
struct RankProgress {
  static constexpr std::int64_t kNone = -1;

  int replica = 0;
  std::int64_t done = kNone;  // number of completed steps; kNone: the rank has no training state
  bool prepared = false;      // the gradients of step `done` + 1 are complete
};

struct StepCommit {
  std::int64_t step = RankProgress::kNone;  // the number of completed steps of the job; kNone: no rank has the state
  std::vector<bool> has_state;              // by rank: it has the state of that step, after finishes[rank]
  std::vector<bool> finishes;               // by rank: it has to complete its prepared step
};

// Throws InternalError if no replica can reach the newest step.
StepCommit commit_step(const std::vector<RankProgress>& ranks);

}  // namespace gantry
