// `gantry train --status [HOST:]PORT`: the run's latest numbers over HTTP, and with an `output` its report while it
// grows.
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
  // Serves there and prints the URL, and the token where a random one was made. ResourceError for a port in use,
  // UsageError for a host that is none of this one's, or a token that is too short.
  LiveStatus(const StatusPlace& place, const World& world);

  // From here on the report, where there is an output: its files are this run's own, no earlier one's.
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
  StatusServer server_;  // last: it reads what stands above
};

}  // namespace gantry
