// The requirements of parallel.expert above 1 for the other keys of a layout.
#pragma once

#include <optional>

#include "gantry/core/config.h"
#include "gantry/core/error.h"

namespace gantry {

// The first key that does not fit; absent if all keys fit.
std::optional<ErrorText> fault_of_experts(const ParallelConfig& parallel);

}  // namespace gantry
