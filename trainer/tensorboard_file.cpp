#include "gantry/trainer/tensorboard_file.h"

#include "gantry/trainer/metric_scalars.h"
#include "gantry/trainer/report/event_file.h"

namespace gantry {

TensorBoardFile::TensorBoardFile(const std::string& output, std::int64_t done)
    : events_(std::make_unique<EventFile>(output + "/tensorboard", done > 0 ? done + 1 : 0)) {}

TensorBoardFile::~TensorBoardFile() = default;

void TensorBoardFile::write(const StepMetrics& metrics) { events_->write(metrics.step, scalars_of(metrics)); }

void TensorBoardFile::write(const EvaluationMetrics& metrics) { events_->write(metrics.step, scalars_of(metrics)); }

}  // namespace gantry
