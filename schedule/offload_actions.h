// Offloading to host memory for any schedule, as actions. OFFLOAD moves data to host memory concurrently with
// computations, and RELOAD moves it back before it is used. For a microbatch, the data are the activations that the
// forward saves for the backward. For a stage, the data are the optimizer state, which no computation of a step needs:
// it is offloaded at the start of the row and reloaded at its end, when the optimizer steps.
#pragma once

#include <string>

#include "gantry/schedule/offload.h"
#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

// Parses train.offload: none | optimizer | activations | both.
Offload offload_of(const std::string& name);

bool is_offload_action(ActionKind kind);

// Places these actions in the schedule and replaces any that it has. The computations keep their order. The schedule
// must not have messages (lower() adds them afterwards). Activations are offloaded if there is at least one computation
// between the two moves, and reloaded while the computation before the backward runs. The state of a stage is reloaded
// while its last computation runs. Without backwards, no actions are placed.
Schedule with_offload_actions(const Schedule& schedule, Offload offload);

// Checks that offloaded data exist, are offloaded once, and are back before the backward, or before the end of the row
// for the optimizer state. Throws ConfigError like validate().
void prove_offload_actions(const Schedule& schedule);

}  // namespace gantry::schedule
