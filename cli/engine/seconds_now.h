#pragma once

#include <chrono>

namespace gantry::cli {

// On the steady clock.
inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace gantry::cli
