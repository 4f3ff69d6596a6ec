// The signals that a launch receives.
#pragma once

#include "gantry/launch/supervisor/descriptor.h"

namespace gantry::launcher {

// The signals that ask a launch to stop (SIGINT, SIGTERM, SIGHUP, SIGUSR1), SIGUSR2 for its ranks, and
// SIGCHLD. They are caught from the construction on, until the end of the process.
class LaunchSignals {
 public:
  LaunchSignals();
  int descriptor() const { return descriptor_.get(); }  // readable when a signal is pending
  int take();                                           // the number of the next signal; 0: none
  // Waits for at most `seconds`. Returns the number of a stop signal if one arrives, otherwise 0.
  int wait(double seconds);

 private:
  Descriptor descriptor_;
};

}  // namespace gantry::launcher
