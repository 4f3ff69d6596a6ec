// The costs of actions in `gantry schedule`, from its flags: F,I,W,COMM and others.
#pragma once

#include "gantry/cli/schedule_options.h"
#include "gantry/schedule/schedule.h"
#include "gantry/schedule/simulate.h"

namespace gantry::cli {

// Returns the costs of computations and messages. Without flags, those of the configuration. Throws UsageError if a
// value is not a time.
schedule::Costs stated_times(const ScheduleOptions& options);

// Adds the costs of gathers and transfers to `costs` if `of` has such actions. Throws UsageError if the number of
// stages in `costs` differs from the number in `of`.
void add_extra_times(schedule::Costs& costs, const schedule::Schedule& of, const ScheduleOptions& options);

}  // namespace gantry::cli
