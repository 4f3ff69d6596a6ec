// What a configuration states of what is estimated, for those that read one themselves.
#pragma once

#include "gantry/core/config.h"
#include "gantry/planner/layout.h"

namespace gantry::planner {

// ConfigError where the model is no described decoder.
models::DecoderSpec stated_model(const Config& config);
Workload stated_workload(const Config& config);
Layout stated_layout(const Config& config);

}  // namespace gantry::planner
