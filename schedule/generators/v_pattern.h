// Building blocks of V schedules (Qi et al., arXiv 2405.15362): one microbatch's forwards and backwards at fixed
// distances, repeated every period. Short distances hold few activations.
#pragma once

#include <array>

#include "gantry/schedule/generators/greedy.h"

namespace gantry::schedule {

// Orders of F and I that repeat a block without two actions of a rank at one time, for blocks whose steps
// between neighbouring stages are 1 to 3 units and whose turns wait as little as they can.
std::vector<Schedule> v_pattern_orders(const Schedule& placed);

}  // namespace gantry::schedule
