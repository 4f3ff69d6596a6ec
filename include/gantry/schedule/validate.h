// Proof that a schedule can run: every (stage, microbatch) computed exactly once in each kind, in an order that the
// data allows, every send matched by a receive, and no deadlock even when a send blocks until it is received
// (rendezvous).
#pragma once

#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

// ConfigError that names the rank, the action, its position and the reason; for a deadlock, who waits for whom.
// Positions count a row's actions from 0, idle cells left out and the parts of an overlapped pair apart. Takes
// compute-only schedules (then only data has to arrive in time), lowered ones (then every message has to be there too,
// and both its sides block), and schedules without any backward. The parts of an overlapped pair run at once: neither
// may need the other's result.
void validate(const Schedule& schedule);

}  // namespace gantry::schedule
