// Verifies that a schedule can run. Every stage and microbatch is computed exactly once in each kind, in an order that
// respects data dependencies. Every send has a receive, and there is no deadlock even if a send blocks until it is
// received (rendezvous).
#pragma once

#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

// Throws ConfigError with the rank, the action, its position and the reason; for a deadlock, with the chain of waiting
// ranks. Positions count the actions of a row from 0, without idle cells; the parts of an overlapped pair count
// separately.
// Accepts compute-only schedules (data must be computed in time), lowered schedules (every message must exist too, and
// both its sides block), and schedules without backwards. The parts of an overlapped pair run concurrently: neither may
// need the other's result.
void validate(const Schedule& schedule);

}  // namespace gantry::schedule
