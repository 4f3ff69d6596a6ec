// What waits in host memory under any schedule, as actions: OFFLOAD moves it there beside what is computed, and RELOAD
// brings it back ahead of its use. Of a microbatch these are what its forward keeps for its backward; of a stage, the
// optimizer's state, which no computation of a step needs: it leaves at the row's start and is back at its end, where
// the optimizer steps.
#pragma once

#include <string>

#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

struct Offload {
  bool state = false;  // the optimizer's
  bool activations = false;

  bool any() const { return state || activations; }
};
// Of train.offload: none | optimizer | activations | both.
Offload offload_of(const std::string& name);

bool is_offload_action(ActionKind kind);

// The schedule with these actions placed, in place of any that it has. Its computations keep their order; it must not
// have messages (lower() places them afterwards). What a forward keeps is moved where its backward comes so late that a
// computation lies between the two moves, and comes back while the computation before the backward runs. A stage's
// state comes back while its last computation runs. Without backwards nothing is placed.
Schedule with_offload_actions(const Schedule& schedule, Offload offload);

// What is moved out was made and is still needed, once; it is back before the backward, or at the row's end, where the
// optimizer steps. ConfigError as of validate().
void prove_offload_actions(const Schedule& schedule);

}  // namespace gantry::schedule
