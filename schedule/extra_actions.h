// Extra actions change the memory that a rank holds for a stage, concurrently with the computations. Each family of
// them has a rule that places the actions: parameters that are sharded over replicas (parameter_actions.h), or data
// that is offloaded to host memory (offload_actions.h). Here are two further functions for each family: a validation of
// each row, and the costs. A schedule without actions of a family needs no validation of it.
#pragma once

#include <string>
#include <vector>

#include "gantry/schedule/schedule.h"
#include "gantry/schedule/simulate.h"

namespace gantry::schedule {

// Validates the extra actions of every family. The computations of the schedule must be valid. Throws ConfigError like
// validate().
void prove_extra_actions(const Schedule& schedule);

// Extra actions of a rank that take time run one after the other, concurrently with its computations. Each starts when
// the row has reached it and the previous one has ended.
struct ExtraCost {
  double seconds = 0;
  double bytes = 0;              // amount that is sent over the network
  double held_from_start = 0;    // memory, in the unit of StageCosts::activation
  double released_at_start = 0;  // time on a rank that has finished its part
  double released_at_end = 0;
};
ExtraCost extra_cost(const Action& action, const StageCosts& of);

// True if the computation has to wait for the last such extra action of its stage.
bool waits_for(const Action& computation, ActionKind extra);

bool has_extras(const Schedule& schedule);

[[noreturn]] void refuse_extra(const Schedule& schedule, int rank, int position, const std::string& what,
                               const std::string& expected);

}  // namespace gantry::schedule
