// Simulation of one schedule with many costs.
#pragma once

#include "gantry/schedule/simulate.h"

namespace gantry::schedule {

// Like simulate(), for a schedule that validate() has accepted.
Simulation simulate_valid(const Schedule& schedule, const Costs& costs);

}  // namespace gantry::schedule
