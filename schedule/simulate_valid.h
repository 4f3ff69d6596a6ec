// Simulation of one schedule with many costs.
#pragma once

#include "gantry/schedule/simulate.h"

namespace gantry::schedule {

// As simulate(), of a schedule that validate() has let pass.
Simulation simulate_valid(const Schedule& schedule, const Costs& costs);

}  // namespace gantry::schedule
