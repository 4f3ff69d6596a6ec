// The requirements of train.device_graphs for the other keys.
#pragma once

#include <optional>

#include "gantry/core/config.h"
#include "gantry/core/error.h"

namespace gantry {

// The reason why stages cannot be captured with this configuration, with the conflicting key in `where`; absent if they
// can, or if device_graphs is off.
std::optional<ErrorText> fault_of_device_graphs(const Config& config);

}  // namespace gantry
