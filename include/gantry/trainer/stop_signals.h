// Handles SIGTERM, SIGINT and SIGUSR1 as requests to stop (core/host/stop_request.h): the first signal is recorded, the
// second one ends the process at once.
#pragma once

#include <array>
#include <csignal>

namespace gantry {

// Handles the signals during its lifetime. Only one instance per process may exist at a time.
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
