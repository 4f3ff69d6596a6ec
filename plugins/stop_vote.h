// Whether ranks that compute together give a step up, without waiting for each other: what they wanted when they were
// asked the last time is known to all of them when they are asked again.
#pragma once

#include <functional>

#include "gantry/comm/process_group.h"

namespace gantry {

class StopVote {
 public:
  // `wants` says whether this rank wants to stop. The group is not owned.
  StopVote(ProcessGroup& group, std::function<bool()> wants) : group_(group), wants_(std::move(wants)) {}

  // The same on every rank of the group at the same call. Collective; not to be called again once it was true.
  bool operator()();

 private:
  ProcessGroup& group_;
  std::function<bool()> wants_;
  torch::Tensor ballot_;  // of the call before; undefined at the first one
  Work count_;            // after the ballot, so that it ends first
};

}  // namespace gantry
