// Writes the metrics of a run as a run of MLflow to OUTPUT/mlruns, in the layout of MLflow's file store.
#pragma once

#include <cstdint>
#include <string>

#include "gantry/core/config.h"
#include "gantry/trainer/metrics.h"

namespace gantry {

// The run is in experiment 0 (Default). It is named after the output directory, and its parameters are the keys of the
// configuration. MLflow shows it with `--backend-store-uri OUTPUT/mlruns`.
class MlflowFiles final : public MetricSink {
 public:
  enum class Status { kRunning = 1, kFinished = 3, kFailed = 4, kKilled = 5 };

  // `done`: number of steps before the first step of this run. Above 0, the newest run in OUTPUT/mlruns is continued,
  // without its metrics of later steps, which are trained again, unless evaluation.only is set; otherwise a run is
  // added. All members throw ResourceError if a file cannot be written.
  MlflowFiles(const Config& config, std::int64_t done);

  void write(const StepMetrics& metrics) override;
  void write(const EvaluationMetrics& metrics) override;
  // Writes the end of the run. Without this call MLflow shows the run as running.
  void finish(Status status);
  const std::string& run_id() const { return run_id_; }

 private:
  void append(const std::string& name, double value, std::int64_t step) const;
  void write_experiment() const;
  void write_run(Status status, std::int64_t end_time) const;
  void write_parameters(const Config& config) const;
  void drop_metrics_after(std::int64_t step) const;

  std::string store_, run_id_, folder_, name_;
  std::int64_t start_time_ = 0;  // in milliseconds since 1970, like all times of MLflow
};

}  // namespace gantry
