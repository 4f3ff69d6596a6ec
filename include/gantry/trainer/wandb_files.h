// Writes the metrics of a run as an offline run of Weights & Biases to OUTPUT/wandb.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/trainer/metrics.h"

namespace gantry {

class WandbLog;

// The directory OUTPUT/wandb/offline-run-YYYYMMDD_HHMMSS-ID, which `wandb sync` uploads. The run is named after the
// output directory, its project is "gantry", and its configuration has the keys of the configuration. A row of its
// history has the metrics of a step and of the evaluation after the step. So the row is written when the next step is
// known, or at the end.
class WandbFiles final : public MetricSink {
 public:
  // `done`: number of steps before the first step of this run. Above 0, the newest run of Gantry in OUTPUT/wandb is
  // continued, without its metrics of later steps, which are trained again, unless evaluation.only is set; otherwise a
  // run is added. All members except the destructor throw ResourceError if a file cannot be written.
  WandbFiles(const Config& config, std::int64_t done);
  ~WandbFiles() override;

  void write(const StepMetrics& metrics) override;
  void write(const EvaluationMetrics& metrics) override;
  // Writes the end of the run: 0 if it finished, 255 if a signal stopped it, any other number if it failed. Without
  // this call `wandb sync` reports a failed run.
  void finish(int exit_code);
  const std::string& run_id() const { return run_id_; }

 private:
  using Items = std::vector<std::pair<std::string, std::string>>;  // name and JSON value
  struct Row {
    std::int64_t step = 0;
    Items items;
  };

  void begin(const Config& config);
  // False if OUTPUT/wandb has no run.
  bool continue_newest(const Config& config, std::int64_t done);
  void add(std::int64_t step, const std::vector<std::pair<std::string, double>>& scalars);
  void write_row();
  std::vector<std::string> records_of_row() const;
  std::string numbered(const std::string& record);
  void insert_row();

  std::string store_, run_id_, path_;
  bool inserts_ = false;  // evaluation.only: the row is merged into the finished run
  std::unique_ptr<WandbLog> log_;
  std::uint64_t last_record_ = 0;  // number of the last record, from 1
  double start_ = 0;               // seconds since 1970, less the time that earlier parts of the run took
  std::optional<Row> row_;         // not yet written
};

}  // namespace gantry
