// The features that do not support multi-token prediction.
#pragma once

#include "gantry/core/config.h"

namespace gantry {

// Throws ConfigError if the model trains layers of multi-token prediction and the configuration has such a feature.
void refuse_with_mtp(const Config& config);

}  // namespace gantry
