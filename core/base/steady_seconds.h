// The clock for durations.
#pragma once

#include <chrono>

namespace gantry {

// Only differences are meaningful. All ranks of a machine use the same clock.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace gantry
