// A rank's time in heuristics that compare how long ranks were idle.
#pragma once

#include <algorithm>

namespace gantry::schedule {

struct RankClock {
  double now = 0;
  double idle = 0;  // since the first action
  bool started = false;

  // Runs an action as soon as its data is there; when it ends.
  double run(double ready, double cost) {
    const double start = std::max(now, ready);
    if (started) idle += start - now;
    started = true;
    return now = start + cost;
  }
};

}  // namespace gantry::schedule
