// The model, the workload and the layout that a configuration sets.
#pragma once

#include "gantry/core/config.h"
#include "gantry/planner/layout.h"

namespace gantry::planner {

// Throws ConfigError if the model is not of a built-in decoder family.
models::DecoderSpec stated_model(const Config& config);
Workload stated_workload(const Config& config);
Layout stated_layout(const Config& config);

// The trained parameters, from train.freeze and lora, or from the file of lora.path. Throws ConfigError if a name
// matches nothing, and otherwise like resolve_lora().
TrainedPart trained_part(const Config& config, const models::DecoderSpec& model);

}  // namespace gantry::planner
