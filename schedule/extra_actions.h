// Extra actions change what a rank holds of a stage, beside what is computed. A family of them, such as those of
// parameters that are cut over replicas (parameter_actions.h) or of what waits in host memory (offload_actions.h), has
// a rule that places them, and here two further things: a proof over each row, and what they cost. A schedule without
// any of a family's actions has nothing to prove.
#pragma once

#include <string>
#include <vector>

#include "gantry/schedule/schedule.h"
#include "gantry/schedule/simulate.h"

namespace gantry::schedule {

// Every family's proof, of a schedule whose computations are proved. ConfigError as of validate().
void prove_extra_actions(const Schedule& schedule);

// Extra actions of a rank that take time run one after the other beside its computations: each starts when the row has
// come to it and the one before it has ended.
struct ExtraCost {
  double seconds = 0;
  double bytes = 0;              // that it moves over the network
  double held_from_start = 0;    // memory, in the unit of StageCosts::activation
  double released_at_start = 0;  // by a rank that is done with it
  double released_at_end = 0;
};
ExtraCost extra_cost(const Action& action, const StageCosts& of);

// True where the computation has to wait for the last such extra action of its stage.
bool waits_for(const Action& computation, ActionKind extra);

// Without any extra actions.
Schedule without_extras(Schedule schedule);
bool has_extras(const Schedule& schedule);

[[noreturn]] void refuse_extra(const Schedule& schedule, int rank, int position, const std::string& what,
                               const std::string& expected);

}  // namespace gantry::schedule
