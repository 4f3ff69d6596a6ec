// What of a described decoder a configuration trains.
#pragma once

#include "gantry/core/config.h"
#include "gantry/planner/layout.h"

namespace gantry::planner {

// By train.freeze and lora. ConfigError for a name that matches nothing, and for lora.path, whose file says what is
// adapted.
TrainedPart trained_part(const Config& config, const models::DecoderSpec& model);

}  // namespace gantry::planner
