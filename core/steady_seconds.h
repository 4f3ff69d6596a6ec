// The clock by which durations are measured.
#pragma once

#include <chrono>

namespace gantry {

// Only differences mean anything. All ranks of one machine read the same clock.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace gantry
