// The numbers of a run as TensorBoard's scalars, under OUTPUT/tensorboard.
#pragma once

#include <string>

#include "gantry/trainer/metrics.h"
#include "gantry/trainer/report/event_file.h"

namespace gantry {

class TensorBoardFile final : public MetricSink {
 public:
  // `done`: the steps before this run's first one. ResourceError where it can't be written.
  TensorBoardFile(const std::string& output, std::int64_t done)
      : events_(output + "/tensorboard", done > 0 ? done + 1 : 0) {}

  void write(const StepMetrics& metrics) override;
  void write(const EvaluationMetrics& metrics) override;

 private:
  EventFile events_;
};

}  // namespace gantry
