// Who hears of a run while it trains: sinks of its numbers on rank 0, and the program's callbacks on all ranks.
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
  // Not owned.
  explicit RunListeners(const World& world) : world_(world) {}

  // The program's own.
  void add(TrainerCallbacks callbacks) { callbacks_.push_back(std::move(callbacks)); }
  void add(std::unique_ptr<MetricSink> sink) { sinks_.push_back(std::move(sink)); }

  // Live status, which hears before the others. Errors as of LiveStatus.
  void serve(const StatusPlace& place);
  void set_steps(std::int64_t steps);  // of the whole run, now that it is known
  void show_report();                  // as LiveStatus's
  // The files of config.output that train.log_files names, and the line of progress, of a run that continues after
  // `done` steps.
  void open(const Config& config, std::int64_t done);

  // To the sinks on rank 0, and then to the callbacks.
  void publish(const StepMetrics& metrics);
  void publish(const EvaluationMetrics& metrics);
  // To the callbacks. Another exception than a gantry::Error becomes a UserError with the callback's name.
  void tell_of_start(std::int64_t done) const;
  void tell_of_batch(std::int64_t step, const Batch& batch) const;
  // The function for ExecuteOptions; empty without such a callback.
  std::function<void(int stage, int microbatch)> before_backward(std::int64_t step) const;
  bool reads_gradients() const;
  void tell_of_gradients(const StepGradients& gradients) const;
  void tell_before_step(std::int64_t step) const;
  void tell_of_save(std::int64_t step) const;
  void tell_of_end(const RunEnd& end) const;
  // To the files, for the exception that ends the run of this rank.
  void tell_of_failure(std::exception_ptr error) noexcept;

  // Before anything is printed.
  void clear_progress();
  // The line of progress stays where it is, and is not renewed again.
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
  std::vector<std::unique_ptr<MetricSink>> sinks_;      // the program's
  std::vector<std::unique_ptr<MetricSink>> own_sinks_;  // rank 0's
  ProgressLine* progress_ = nullptr;                    // one of them
  LiveStatus* live_ = nullptr;                          // another one
  MlflowFiles* mlflow_ = nullptr;                       // another one
  WandbFiles* wandb_ = nullptr;                         // another one
  std::unique_ptr<RunEvents> events_;                   // null unless train.log_files names them
};

}  // namespace gantry
