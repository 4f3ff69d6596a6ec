// The numbers of a run as TensorBoard's scalars, under OUTPUT/tensorboard.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gantry/trainer/metrics.h"

namespace gantry {

class EventFile;

class TensorBoardFile final : public MetricSink {
 public:
  // `done`: the steps before this run's first one. ResourceError where it can't be written.
  TensorBoardFile(const std::string& output, std::int64_t done);
  ~TensorBoardFile() override;

  void write(const StepMetrics& metrics) override;
  void write(const EvaluationMetrics& metrics) override;

 private:
  std::unique_ptr<EventFile> events_;
};

}  // namespace gantry
