// A vote of ranks that compute together on aborting a step. No rank waits for a vote in progress: each call
// returns the result of the previous vote, and starts a new one.
#pragma once

#include <functional>

#include "gantry/comm/process_group.h"

namespace gantry {

class StopVote {
 public:
  // `wants` returns whether this rank wants to stop. The group is not owned.
  StopVote(ProcessGroup& group, std::function<bool()> wants) : group_(group), wants_(std::move(wants)) {}

  // Returns the same value on every rank of the group in the same call. Collective. Do not call it again
  // after it has returned true.
  bool operator()();

 private:
  ProcessGroup& group_;
  std::function<bool()> wants_;
  torch::Tensor ballot_;  // ballot of the previous call; undefined in the first call
  Work count_;            // declared after the ballot, so that it is destroyed first
};

}  // namespace gantry
