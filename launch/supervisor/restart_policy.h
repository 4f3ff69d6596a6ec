// Decides whether a job that failed is started again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gantry/launch/supervisor/rank_end.h"

namespace gantry::launcher {

struct JobFailure {
  Verdict verdict;
  std::optional<std::int64_t> step;  // the last completed step, if known
};

struct RestartDecision {
  bool again = false;
  double seconds = 0;  // pause before the restart
  std::string line;    // the reason; empty if no restarts were requested
};

// `starts`: number of starts so far. `restarts`: maximum number of restarts. `checkpoints`: where the job
// saves (empty: nowhere). `before`: the previous failure.
//
// The job is started again after failures that may pass: internal (1), resources (6), a lost peer or a signal
// (7), numerical (8). It is not started again if the same failure occurred twice at the same step (unknown
// steps count as equal), or without checkpoints, because training would start from scratch. The pause is 1,
// 2, 4, ... s, at most 60.
RestartDecision decide_restart(int restarts, int starts, const std::string& checkpoints, const JobFailure& failure,
                               const std::optional<JobFailure>& before);

}  // namespace gantry::launcher
