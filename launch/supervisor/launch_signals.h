// What signals tell a launch.
#pragma once

#include "gantry/launch/supervisor/descriptor.h"

namespace gantry::launcher {

// The signals that ask a launch to stop (SIGINT, SIGTERM, SIGHUP, SIGUSR1), SIGUSR2 for its ranks, and SIGCHLD: caught
// from its making on, for as long as the process lives.
class LaunchSignals {
 public:
  LaunchSignals();
  int descriptor() const { return descriptor_.get(); }  // ready when there is one
  int take();                                           // the next one's number; 0: none
  // Waits so many seconds; a stop signal's number if one comes, else 0.
  int wait(double seconds);

 private:
  Descriptor descriptor_;
};

}  // namespace gantry::launcher
