// What of a described decoder a configuration trains.
#pragma once

#include "gantry/core/config.h"
#include "gantry/planner/layout.h"

namespace gantry::planner {

// By train.freeze and lora, or what the file of lora.path says in its place. ConfigError for a name that matches
// nothing; else as of resolve_lora().
TrainedPart trained_part(const Config& config, const models::DecoderSpec& model);

}  // namespace gantry::planner
