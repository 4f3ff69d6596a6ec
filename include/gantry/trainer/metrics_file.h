// OUTPUT/metrics.jsonl: a line of JSON for each step and each evaluation.
#pragma once

#include <cstdio>
#include <string>

#include "gantry/trainer/metrics.h"

namespace gantry {

class MetricsFile final : public MetricSink {
 public:
  // Adds to OUTPUT/metrics.jsonl, flushed after each line. An earlier run's lines are taken out of its way before
  // (report/earlier_run.h). ResourceError where it can't be written, of write() too.
  explicit MetricsFile(const std::string& output);
  ~MetricsFile() override;
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void write(const StepMetrics& metrics) override;
  void write(const EvaluationMetrics& metrics) override;

 private:
  void write_line(const std::string& line);

  std::string path_;
  std::FILE* file_;
};

}  // namespace gantry
