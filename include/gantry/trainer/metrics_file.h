// Writes OUTPUT/metrics.jsonl: one line of JSON per step and per evaluation.
#pragma once

#include <cstdio>
#include <string>

#include "gantry/trainer/metrics.h"

namespace gantry {

class MetricsFile final : public MetricSink {
 public:
  // Appends to OUTPUT/metrics.jsonl and flushes after each line. Lines of an earlier run must be moved away before
  // (report/earlier_run.h). This constructor and write() throw ResourceError if the file cannot be written.
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
