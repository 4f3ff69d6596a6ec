// Metrics as named numbers, for formats that have a curve for each name.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gantry/trainer/metrics.h"

namespace gantry {

using MetricScalars = std::vector<std::pair<std::string, double>>;

// Names such as train/loss, train/loss/NAME of an added loss, and speed/tokens_per_second (docs/monitoring.md).
MetricScalars scalars_of(const StepMetrics& metrics);
MetricScalars scalars_of(const EvaluationMetrics& metrics);

}  // namespace gantry
