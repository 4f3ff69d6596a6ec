// `gantry train --status PORT`: the run's latest numbers over HTTP.
#pragma once

#include "gantry/cli/engine/metrics.h"
#include "gantry/comm/control/run_status.h"
#include "gantry/comm/control/status_server.h"
#include "gantry/comm/world.h"

namespace gantry::cli {

class LiveStatus {
 public:
  // Serves on comm.interface, or loopback without one, and prints the URL. ResourceError for a port in use.
  LiveStatus(int port, const World& world);

  void update(const StepMetrics& metrics);

 private:
  RunStatus status_;
  RunNumbers numbers_;   // the training loop's own copy
  StatusServer server_;  // last: it reads status_
};

}  // namespace gantry::cli
