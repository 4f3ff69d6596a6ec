// Writes the metrics of a run as TensorBoard scalars to OUTPUT/tensorboard.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gantry/trainer/metrics.h"

namespace gantry {

class EventFile;

class TensorBoardFile final : public MetricSink {
 public:
  // `done`: number of steps before the first step of this run. Throws ResourceError if the file cannot be written.
  TensorBoardFile(const std::string& output, std::int64_t done);
  ~TensorBoardFile() override;

  void write(const StepMetrics& metrics) override;
  void write(const EvaluationMetrics& metrics) override;

 private:
  std::unique_ptr<EventFile> events_;
};

}  // namespace gantry
