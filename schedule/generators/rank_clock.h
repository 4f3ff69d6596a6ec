// The time of a rank, for heuristics that compare the idle times of ranks.
#pragma once

#include <algorithm>

namespace gantry::schedule {

struct RankClock {
  double now = 0;
  double idle = 0;  // idle time since the first action
  bool started = false;

  // Executes an action as soon as its data are available, and returns its end.
  double run(double ready, double cost) {
    const double start = std::max(now, ready);
    if (started) idle += start - now;
    started = true;
    return now = start + cost;
  }
};

}  // namespace gantry::schedule
