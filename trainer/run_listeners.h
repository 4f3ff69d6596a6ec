// The listeners of a run: metric sinks on rank 0, and the program's callbacks on all ranks.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "gantry/comm/world.h"
#include "gantry/trainer/callbacks.h"
#include "gantry/trainer/live_status.h"
#include "gantry/trainer/metrics.h"
#include "gantry/trainer/mlflow_files.h"
#include "gantry/trainer/progress_line.h"
#include "gantry/trainer/run_events.h"
#include "gantry/trainer/wandb_files.h"

namespace gantry {

class RunListeners {
 public:
  // `world` must outlive this object.
  explicit RunListeners(const World& world) : world_(world) {}

  // Adds the program's own callbacks and sinks.
  void add(TrainerCallbacks callbacks) { callbacks_.push_back(std::move(callbacks)); }
  void add(std::unique_ptr<MetricSink> sink) { sinks_.push_back(std::move(sink)); }

  // Starts live status, which gets the metrics before the other sinks. Throws the errors of LiveStatus.
  void serve(const StatusPlace& place);
  void set_steps(std::int64_t steps);  // number of steps of the complete run, once it is known
  void show_report();                  // see LiveStatus::show_report()
  // Opens the files in config.output that train.log_files lists, and the progress line, for a run that
  // continues after `done` steps.
  void open(const Config& config, std::int64_t done);

  // Passes metrics to the sinks on rank 0, and then to the callbacks. Returns the ResourceError of a sink or of the
  // events, so that the run can be saved before it ends; null without one.
  [[nodiscard]] std::exception_ptr publish(const StepMetrics& metrics);
  [[nodiscard]] std::exception_ptr publish(const EvaluationMetrics& metrics);
  // The following functions call the callbacks. An unknown exception, which would be an internal error,
  // becomes a UserError with the callback's name.
  void tell_of_start(std::int64_t done) const;
  void tell_of_batch(std::int64_t step, const Batch& batch) const;
  // Returns the function for ExecuteOptions; empty if no callback has before_backward.
  std::function<void(int stage, int microbatch)> before_backward(std::int64_t step) const;
  bool reads_gradients() const;
  void tell_of_gradients(const StepGradients& gradients) const;
  void tell_before_step(std::int64_t step) const;
  [[nodiscard]] std::exception_ptr tell_of_save(std::int64_t step) const;  // returns the same as publish()
  void tell_of_end(const RunEnd& end) const;
  // Writes the exception that ends the run of this rank to the files.
  void tell_of_failure(std::exception_ptr error) noexcept;

  // Erases the progress line. Call it before printing.
  void clear_progress();
  // Leaves the progress line as it is, without further updates.
  void end_progress();

 private:
  template <class Metrics>
  void write(const Metrics& metrics) const;
  template <class Function, class... Values>
  void tell(const char* name, Function TrainerCallbacks::*callback, const Values&... values) const;
  void open_files(const Config& config, std::int64_t done);
  template <class Sink>
  Sink* add_own(std::unique_ptr<Sink> sink);

  const World& world_;
  std::vector<TrainerCallbacks> callbacks_;
  std::vector<std::unique_ptr<MetricSink>> sinks_;      // sinks of the program
  std::vector<std::unique_ptr<MetricSink>> own_sinks_;  // Gantry's sinks, on rank 0 only
  ProgressLine* progress_ = nullptr;                    // in own_sinks_, or null
  LiveStatus* live_ = nullptr;                          // in own_sinks_, or null
  MlflowFiles* mlflow_ = nullptr;                       // in own_sinks_, or null
  WandbFiles* wandb_ = nullptr;                         // in own_sinks_, or null
  std::unique_ptr<RunEvents> events_;                   // null unless train.log_files names them
};

}  // namespace gantry
