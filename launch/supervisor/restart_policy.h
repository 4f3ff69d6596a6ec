// Whether a job that failed is started again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gantry/launch/supervisor/rank_end.h"

namespace gantry::launcher {

struct JobFailure {
  Verdict verdict;
  std::optional<std::int64_t> step;  // the last one that was done, where something says it
};

struct RestartDecision {
  bool again = false;
  double seconds = 0;  // to wait before
  std::string line;    // why, or why not; empty where nobody asked for restarts
};

// `starts` is how often the job has been started, `restarts` how often it may be started again, `checkpoints` where it
// saves (empty: nowhere), `before` the failure before this one.
//
// Started again are failures of a kind that may pass: internal (1), resources (6), a lost peer or a signal (7),
// numerical (8). Not if the same failure came twice at the same step (unknown steps count as the same), nor without
// checkpoints: training would begin anew. The wait is 1, 2, 4, ... s, at most 60.
RestartDecision decide_restart(int restarts, int starts, const std::string& checkpoints, const JobFailure& failure,
                               const std::optional<JobFailure>& before);

}  // namespace gantry::launcher
