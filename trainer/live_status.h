// `gantry train --status [HOST:]PORT`: serves the run's latest numbers over HTTP and, if `output` is set, its
// growing report.
#pragma once

#include <atomic>

#include "gantry/comm/world.h"
#include "gantry/trainer/metrics.h"
#include "gantry/trainer/report/run_reader.h"
#include "gantry/trainer/status/run_status.h"
#include "gantry/trainer/status/status_access.h"
#include "gantry/trainer/status/status_server.h"

namespace gantry {

class LiveStatus final : public MetricSink {
 public:
  // Starts the server and prints its URL, and the token if it is a random one. Throws ResourceError if the
  // port is in use, and UsageError if the host is not an address of this machine or if the token is too
  // short.
  LiveStatus(const StatusPlace& place, const World& world);

  // Serves the report from now on, if there is an output. Call it once the output's files belong to this run
  // and not to an earlier one.
  void show_report() { shows_report_ = has_output_; }

  void set_steps(std::int64_t steps) { numbers_.steps = steps; }

  void write(const StepMetrics& metrics) override;
  void write(const EvaluationMetrics&) override {}

 private:
  StatusReply reply(const std::string& path);

  RunStatus status_;
  RunNumbers numbers_;  // the training loop's own copy
  bool has_output_;
  std::atomic<bool> shows_report_{false};
  RunReader reader_;  // used by the server's thread alone
  std::string address_;
  StatusToken token_;
  StatusServer server_;  // last: its thread reads the members above
};

}  // namespace gantry
