// The requirements of the section `elastic` for the other keys.
#pragma once

#include <optional>

#include "gantry/core/config.h"
#include "gantry/core/error.h"

namespace gantry {

// The reason why a job of this configuration cannot be elastic, with the conflicting key in `where`; absent if it can,
// or if it has no section `elastic`.
std::optional<ErrorText> fault_of_elastic(const Config& config);

}  // namespace gantry
