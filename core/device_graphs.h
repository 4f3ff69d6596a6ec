// What train.device_graphs asks of the other keys.
#pragma once

#include <optional>

#include "gantry/core/config.h"
#include "gantry/core/error.h"

namespace gantry {

// Why a stage's work can't be recorded under this configuration, `where` being the key that stands in the way; absent
// where it can, or is not to be.
std::optional<ErrorText> fault_of_device_graphs(const Config& config);

}  // namespace gantry
