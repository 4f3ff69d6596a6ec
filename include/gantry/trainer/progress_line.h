// The run's progress on the terminal: one line that renews itself there, plain lines elsewhere.
#pragma once

#include <cstddef>
#include <string>

#include "gantry/trainer/metrics.h"

namespace gantry {

class ProgressLine final : public MetricSink {
 public:
  ProgressLine(std::int64_t first_step, std::int64_t steps, int log_every);
  ~ProgressLine() override;  // leaves the line as it is, and what is printed next below it
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void write(const StepMetrics& metrics) override;
  void write(const EvaluationMetrics& metrics) override;

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
