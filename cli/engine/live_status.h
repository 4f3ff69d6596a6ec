// `gantry train --status PORT`: the run's latest numbers over HTTP, and with an `output` its report while it grows.
#pragma once

#include <atomic>

#include "gantry/cli/engine/metrics.h"
#include "gantry/cli/report/run_reader.h"
#include "gantry/comm/control/run_status.h"
#include "gantry/comm/control/status_server.h"
#include "gantry/comm/world.h"

namespace gantry::cli {

class LiveStatus {
 public:
  // Serves on comm.interface, or loopback without one, and prints the URL. ResourceError for a port in use.
  LiveStatus(int port, const World& world);

  // From here on the report, where there is an output: its files are this run's own, no earlier one's.
  void show_report() { shows_report_ = has_output_; }

  void update(const StepMetrics& metrics);

 private:
  StatusReply reply(const std::string& path);

  RunStatus status_;
  RunNumbers numbers_;  // the training loop's own copy
  bool has_output_;
  std::atomic<bool> shows_report_{false};
  RunReader reader_;     // used by the server's thread alone
  StatusServer server_;  // last: it reads what stands above
};

}  // namespace gantry::cli
