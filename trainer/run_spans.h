// The spans of a rank's run for OpenTelemetry (train.otlp): the run, its steps, their actions and messages, and the
// saves of checkpoints (docs/monitoring.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "gantry/comm/operation.h"
#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/config.h"
#include "gantry/schedule/action.h"
#include "gantry/trainer/metrics.h"
#include "gantry/trainer/status/otlp_exporter.h"

namespace gantry {

// Thread-safe: `mutex_` guards the members after it. Times are seconds of the steady clock. Operations outside of a
// step are not recorded.
class RunSpans final : public OperationObserver {
 public:
  // `before_print` is called before anything is printed.
  explicit RunSpans(std::function<void()> before_print);
  ~RunSpans() override;

  // Agrees on the number of the trace, and starts the exporter. `prints`: this rank prints the warning and the count of
  // dropped spans; one rank of a process does. Collective over the world.
  void open(const Config& config, ProcessGroupMesh& mesh, std::int64_t done, bool prints);

  void begin_step(std::int64_t step);
  void saw(const schedule::Action& action, double start, double end);
  // Ends the step and hands its spans to the exporter. No metrics: the step was aborted.
  void end_step(const std::optional<StepMetrics>& metrics);
  void saved(std::int64_t step, double start, double end);
  // Ends the run, and waits for the collector for at most 5 s. An empty `error`: the run
  // succeeded.
  void end(const std::string& error) noexcept;

  int begin_group(const std::string& label, const std::vector<int>& ranks, std::uint64_t& operation) override;
  void made(int, std::uint64_t) override {}
  std::uint64_t post(const ObservedCall& call) override;
  void enter_wait(std::uint64_t operation) override;
  void leave(std::uint64_t operation) override;
  void waits(std::uint64_t) override {}
  void finish(std::uint64_t operation, OperationState state) override;

 private:
  struct Message {
    OtlpSpan span;
    double entered = 0, waited = 0;  // start of the wait in progress, or 0; seconds in waits
  };

  std::uint64_t new_id();
  std::int64_t wall_time(double steady) const;
  void close_step(OtlpAttributes results, const std::string& error);
  bool is_full();
  void hand_over();
  void warn_once();

  std::function<void()> before_print_;
  std::int64_t offset_;  // nanoseconds from the steady clock to the time since 1970
  std::unique_ptr<OtlpExporter> exporter_;
  std::string endpoint_;
  bool prints_ = false, has_warned_ = false, has_ended_ = false;

  std::mutex mutex_;
  std::mt19937_64 random_;
  std::vector<std::string> groups_;  // labels by number
  std::vector<OtlpSpan> spans_;      // finished, for the exporter
  std::unordered_map<std::uint64_t, Message> open_;
  std::uint64_t last_message_ = 0;
  std::int64_t lost_ = 0;  // number of spans that had no place in spans_
  OtlpSpan run_, step_;    // step_.id 0: no step is in progress
};

}  // namespace gantry
