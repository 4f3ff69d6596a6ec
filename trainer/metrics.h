// metrics.jsonl, TensorBoard's scalars, and the progress on the terminal.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "gantry/trainer/report/event_file.h"

namespace gantry {

// One training step, as a line of metrics.jsonl has it.
struct StepMetrics {
  std::int64_t step = 0;  // from 1
  double loss = 0;
  double grad_norm = 0;  // before clipping
  double lr = 0;
  std::int64_t tokens = 0;  // counted in this step
  double step_seconds = 0;
  std::vector<std::int64_t> peak_memory_bytes;  // of tensors, by rank, since the run began
  double bubble = 0;                            // share of the pipeline's time that was idle
  double predicted_bubble = 0;                  // the same as simulated, with equal stages
};

// One evaluation on held-out data, after so many steps.
struct EvaluationMetrics {
  std::int64_t step = 0;
  double loss = 0;          // mean over every counted token
  std::int64_t tokens = 0;  // counted
};

// Adds to OUTPUT/metrics.jsonl, flushed after each line, and the same scalars to TensorBoard's event file under
// OUTPUT/tensorboard. What the folder has of an earlier run was put aside (report/earlier_run.h). ResourceError if it
// can't.
class MetricsFile {
 public:
  // `done`: the steps before this run's first one. An empty output writes nothing.
  MetricsFile(const std::string& output, std::int64_t done);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  void write(const StepMetrics& metrics);
  void write(const EvaluationMetrics& metrics);

 private:
  void write_line(const std::string& line);
  std::FILE* file_ = nullptr;
  std::string path_;
  std::optional<EventFile> events_;
};

// One line that renews itself on a terminal, plain lines elsewhere.
class Progress {
 public:
  Progress(std::int64_t first_step, std::int64_t steps, int log_every);
  ~Progress();  // leaves the line as it is, and what is printed next below it
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(const StepMetrics& metrics);
  void show(const EvaluationMetrics& metrics);

  // Takes away a line that the next step would renew: to be called before anything else is printed.
  void clear();

  // The line as a terminal of so many columns has it: with memory, share of the ideal and a bar where there is room.
  std::string fitted(std::string line, const StepMetrics& metrics, std::size_t columns) const;

 private:
  std::int64_t first_step_, steps_;
  int log_every_;
  bool terminal_;
  bool is_open_ = false;  // the cursor stands behind a line that will be renewed
  double seconds_ = 0;
};

}  // namespace gantry
