// Shows the progress of a run: on a terminal as one line that is updated in place, elsewhere as plain lines.
#pragma once

#include <cstddef>
#include <string>

#include "gantry/trainer/metrics.h"

namespace gantry {

class ProgressLine final : public MetricSink {
 public:
  ProgressLine(std::int64_t first_step, std::int64_t steps, int log_every);
  ~ProgressLine() override;  // keeps the line; later output starts below it
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void write(const StepMetrics& metrics) override;
  void write(const EvaluationMetrics& metrics) override;

  // Erases the line on a terminal. Call it before anything else is printed.
  void clear();

  // Formats the line for a terminal with `columns` columns: with memory, share of the ideal speed and a bar if there is
  // space. The bar keeps its width as long as the line fits.
  std::string fitted(std::string line, const StepMetrics& metrics, std::size_t columns);

 private:
  std::int64_t first_step_, steps_;
  int log_every_;
  bool terminal_;
  bool has_legend_ = false;    // the legend of the line's last values was printed
  std::size_t bar_width_ = 0;  // 0: no bar was drawn for this width of the terminal
  std::size_t last_columns_ = 0;
  bool is_open_ = false;  // the cursor is at the end of a line that will be updated
  double seconds_ = 0;
};

}  // namespace gantry
