// What parallel.expert above 1 asks of the other keys of a layout.
#pragma once

#include <optional>
#include <string>

#include "gantry/core/config.h"

namespace gantry {

struct ExpertFault {
  std::string key, what, expected, remedy;
};

// The first key that does not fit; absent where all do.
std::optional<ExpertFault> fault_of_experts(const ParallelConfig& parallel);

}  // namespace gantry
