// SIGTERM, SIGINT and SIGUSR1 as a wish to stop (core/stop_request.h): the first one is remembered, the second
// one ends the process at once.
#pragma once

#include <array>
#include <csignal>

namespace gantry {

// Catches the signals for its lifetime. One at a time in a process.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  std::array<struct sigaction, 3> former_{};
};

}  // namespace gantry
