// The memory that ranks hold in a schedule that was simulated.
#pragma once

#include <vector>

#include "gantry/schedule/simulate.h"

namespace gantry::schedule {

// Sets what the simulation says of memory in `costs`' units, by its timeline and what ran beside it. `has_backward`:
// without one a forward's activations are released at its end. `costs` are by stage.
void measure_memory(Simulation& simulation, const Schedule& schedule, bool has_backward,
                    const std::vector<StageCosts>& costs);

// Chunk activations held at once. The row's order alone decides it, since a rank runs one action at a time.
int peak_activations(const std::vector<Action>& row, bool has_backward);

}  // namespace gantry::schedule
