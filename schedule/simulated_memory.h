// The memory that ranks hold in a simulated schedule.
#pragma once

#include <vector>

#include "gantry/schedule/simulate.h"

namespace gantry::schedule {

// Sets the memory results of the simulation in units of `costs`, from its timeline and its extra actions.
// `has_backward`: without a backward, the activations of a forward are released at its end. `costs` are by stage.
void measure_memory(Simulation& simulation, const Schedule& schedule, bool has_backward,
                    const std::vector<StageCosts>& costs);

// Maximum number of chunk activations held at once. It depends only on the order of the row, because a rank runs one
// action at a time.
int peak_activations(const std::vector<Action>& row, bool has_backward);

}  // namespace gantry::schedule
